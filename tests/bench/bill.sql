-- A bill of AWS for November 2026, as a Cost and Usage Report 2.0 has it, hour by hour. A node has five lines
-- an hour: the instance, its traffic in two lines, a volume, and one other charge. Nodes are under a savings
-- plan, reserved, on demand or on spot, a quarter each.
--
-- Reads $lines, which is the number of all lines, and $an_hour, which is the number of lines of an hour.
-- Makes the view bill. All costs have at most ten decimals, so that their doubles stand for exact decimals.
CREATE MACRO draw(number, salt, below) AS (hash(number, salt, 9) % below::UBIGINT)::BIGINT;
CREATE MACRO id_of(head, number, digits) AS head || substr(md5(head || number), 1, digits);

CREATE TEMP TABLE instances AS
SELECT * REPLACE (price::DOUBLE AS price)
FROM (VALUES
    (0, 'm6i.xlarge', 'm6i', '4', '16 GiB', 8, 0.192),
    (1, 'm6i.4xlarge', 'm6i', '16', '64 GiB', 32, 0.768),
    (2, 'c6i.4xlarge', 'c6i', '16', '32 GiB', 32, 0.68),
    (3, 'r6i.2xlarge', 'r6i', '8', '64 GiB', 16, 0.504),
    (4, 'g5.2xlarge', 'g5', '8', '32 GiB', 16, 1.212),
    (5, 'p4d.24xlarge', 'p4d', '96', '1152 GiB', 192, 32.7726)
) AS instances(kind, instance_type, family, vcpu, memory, factor, price);

CREATE TEMP TABLE charges AS
SELECT * REPLACE (list_rate::DOUBLE AS list_rate)
FROM (VALUES
    ('instance', 'Usage', 'AmazonEC2', 'BoxUsage', 'RunInstances', 'Hrs', NULL, 'Instance Hour'),
    ('regional', 'Usage', 'AmazonEC2', 'DataTransfer-Regional-Bytes', 'InterZone-Out', 'GB', 0.01,
        'GB - regional data transfer - in/out/between EC2 AZs or using elastic IPs or ELB'),
    ('out', 'Usage', 'AWSDataTransfer', 'DataTransfer-Out-Bytes', 'RunInstances', 'GB', 0.09,
        'GB - first 10 TB / month data transfer out beyond the global free tier'),
    ('volume', 'Usage', 'AmazonEC2', 'EBS:VolumeUsage.gp3', 'CreateVolume-Gp3', 'GB-Mo', 0.08,
        'GB-month of General Purpose (gp3) provisioned storage'),
    ('negation', 'SavingsPlanNegation', 'AmazonEC2', 'BoxUsage', 'RunInstances', 'Hrs', NULL,
        'SavingsPlanNegation used by an account'),
    ('balancer', 'Usage', 'AWSELB', 'LCUUsage', 'LoadBalancing:Network', 'LCU-Hrs', 0.006,
        'used Network load balancer capacity unit-hour (or partial hour)'),
    ('gateway', 'Usage', 'AmazonEC2', 'NatGateway-Bytes', 'NatGateway', 'GB', 0.045,
        'GB Data Processed by NAT Gateways'),
    ('requests', 'Usage', 'awskms', 'KMS-Requests', 'Decrypt', 'Requests', 0.000003, 'KMS request'),
    ('tax', 'Tax', 'AmazonEC2', 'BoxUsage', 'RunInstances', NULL, NULL, 'Tax for product code AmazonEC2'),
    ('credit', 'Credit', 'AmazonEC2', 'BoxUsage', 'RunInstances', NULL, NULL, 'Migration credit'),
    ('plan', 'SavingsPlanRecurringFee', 'ComputeSavingsPlans', 'ComputeSP:1yrNoUpfront', NULL, NULL, NULL,
        '1 year No Upfront Compute Savings Plan'),
    ('reservation', 'RIFee', 'AmazonEC2', 'HeavyUsage:m6i.xlarge', 'RunInstances', 'Hrs', NULL,
        'USD 0.1152 hourly fee per Linux/UNIX (Amazon VPC), m6i.xlarge instance')
) AS charges(what, line_type, product_code, usage_type, operation, unit, list_rate, words);

CREATE TEMP VIEW places AS
SELECT number, number // $an_hour AS hour, (number % $an_hour) // 5 AS node, (number % $an_hour) % 5 AS part
FROM range($lines) AS lines(number);

CREATE TEMP VIEW plans AS
SELECT number, hour, node, draw(node, 'type', 6) AS node_kind, node % 20 AS account_number,
    CASE WHEN part = 0 THEN 'instance'
        WHEN part = 1 THEN 'regional'
        WHEN part = 2 THEN 'out'
        WHEN part = 3 THEN 'volume'
        WHEN node % 4 = 0 THEN 'negation'
        WHEN node % 4 = 1 THEN 'balancer'
        WHEN node % 4 = 3 THEN 'gateway'
        WHEN node = 2 AND hour % 24 = 0 THEN 'tax'
        WHEN node = 2 AND hour % 24 = 1 THEN 'credit'
        WHEN node = 6 THEN 'plan'
        WHEN node = 10 AND hour < 6 THEN 'reservation'
        ELSE 'requests' END AS planned
FROM places;

-- How much is used, at which rate, and what it costs.
CREATE TEMP VIEW charged AS
SELECT plans.*, instances.*, charges.*,
    CASE WHEN what = 'instance' AND node % 4 = 0 THEN 'SavingsPlanCoveredUsage'
        WHEN what = 'instance' AND node % 4 = 1 THEN 'DiscountedUsage'
        ELSE line_type END AS line_kind,
    CASE WHEN what = 'instance' AND node % 4 = 3 THEN 'SpotUsage:' || instance_type
        WHEN what IN ('instance', 'negation') THEN 'BoxUsage:' || instance_type
        ELSE usage_type END AS usage_name,
    '44440000' || lpad(account_number::VARCHAR, 4, '0') AS account,
    upper(substr(md5(usage_name), 1, 16)) AS sku,
    CASE WHEN line_kind = 'RIFee' THEN hour WHEN line_kind = 'DiscountedUsage' THEN kind END AS reserved,
    CASE WHEN what = 'plan' THEN hour % 8 WHEN node % 4 = 0 AND what IN ('instance', 'negation')
        THEN (node // 4) % 8 END AS plan,
    'arn:aws:ec2:us-east-1:111122223333:reserved-instances/' || md5('reservation-' || reserved)
        AS reservation_arn,
    'arn:aws:savingsplans::111122223333:savingsplan/' || md5('plan-' || plan) AS plan_arn,
    what IN ('tax', 'reservation') AS is_monthly,
    TIMESTAMP '2026-11-01 00:00:00' + to_hours(CASE WHEN is_monthly THEN 0 ELSE hour END) AS since,
    CASE WHEN is_monthly THEN TIMESTAMP '2026-12-01 00:00:00' ELSE since + INTERVAL 1 HOUR END AS until,
    CASE WHEN what = 'volume' THEN round(50 * (1 + draw(node, 'size', 4)) / 720, 10)
        WHEN what = 'requests' THEN draw(number, 'requests', 100000)::DOUBLE
        WHEN what = 'balancer' THEN draw(number, 'units', 10000) / 10000
        WHEN what IN ('regional', 'out', 'gateway') THEN draw(number, 'bytes', 20000000000) / 10000000000
        ELSE 1::DOUBLE END AS amount,
    CASE WHEN what = 'instance' AND node % 4 = 3
        THEN round(price * (25 + draw(node * 720 + hour, 'spot', 16)) / 100, 4)
        WHEN what IN ('instance', 'negation') THEN price
        ELSE list_rate END AS rate,
    CASE WHEN line_kind = 'DiscountedUsage' THEN 0::DOUBLE
        WHEN what = 'instance' THEN rate
        WHEN what = 'negation' THEN -rate
        WHEN what = 'tax' THEN (5000 + draw(number, 'tax', 5000)) / 100
        WHEN what = 'credit' THEN -(500 + draw(number, 'credit', 500)) / 100
        WHEN what = 'plan' THEN 25::DOUBLE
        WHEN what = 'reservation' THEN 82.944::DOUBLE
        ELSE round(amount * rate, 10) END AS cost
FROM plans JOIN instances ON node_kind = kind JOIN charges ON planned = what;

CREATE TEMP VIEW bill AS
SELECT 'Anniversary' AS bill_bill_type, 'AWS' AS bill_billing_entity,
    TIMESTAMP '2026-12-01 00:00:00' AS bill_billing_period_end_date,
    TIMESTAMP '2026-11-01 00:00:00' AS bill_billing_period_start_date,
    CASE what WHEN 'tax' THEN '2026110002' ELSE '2026110001' END AS bill_invoice_id,
    'Amazon Web Services, Inc.' AS bill_invoicing_entity, '111122223333' AS bill_payer_account_id,
    'Platform' AS bill_payer_account_name,
    CASE WHEN what = 'instance' AND kind = 5 AND node % 4 = 2
        THEN 'arn:aws:ec2:us-east-1:' || account || ':capacity-reservation/' || id_of('cr-0', node, 16)
        END AS capacity_reservation_capacity_reservation_arn,
    CASE WHEN what = 'instance' AND kind = 5 AND node % 4 = 2 THEN 'Used'
        END AS capacity_reservation_capacity_reservation_status,
    NULL::VARCHAR AS capacity_reservation_capacity_reservation_type,
    MAP {'Product': 'platform'} AS cost_category, MAP {'bundledDiscount': 0::DOUBLE} AS discount,
    0::DOUBLE AS discount_bundled_discount, 0::DOUBLE AS discount_total_discount,
    substr(sha256('line-' || number), 1, 52) AS identity_line_item_id,
    strftime(since, '%Y-%m-%dT%H:%M:%SZ') || '/' || strftime(until, '%Y-%m-%dT%H:%M:%SZ')
        AS identity_time_interval,
    CASE WHEN what IN ('instance', 'regional', 'out', 'volume')
        THEN 'us-east-1' || substr('abc', node % 3 + 1, 1) END AS line_item_availability_zone,
    cost AS line_item_blended_cost, printf('%.10f', rate) AS line_item_blended_rate,
    'USD' AS line_item_currency_code, 'Amazon Web Services, Inc.' AS line_item_legal_entity,
    CASE WHEN what = 'instance' THEN '$' || rate || ' per ' || usage_name || ' Linux ' || words
        WHEN line_type = 'Usage' THEN '$' || printf('%.10f', list_rate) || ' per ' || words
        ELSE words END AS line_item_line_item_description,
    line_kind AS line_item_line_item_type, NULL::DOUBLE AS line_item_net_unblended_cost,
    NULL::VARCHAR AS line_item_net_unblended_rate,
    CASE what WHEN 'instance' THEN factor::DOUBLE END AS line_item_normalization_factor,
    CASE what WHEN 'instance' THEN factor::DOUBLE END AS line_item_normalized_usage_amount,
    operation AS line_item_operation, product_code AS line_item_product_code,
    CASE WHEN what IN ('instance', 'regional', 'out') THEN id_of('i-0', node, 16)
        WHEN what = 'volume' THEN id_of('vol-0', node, 16)
        WHEN what = 'balancer'
        THEN 'arn:aws:elasticloadbalancing:us-east-1:' || account || ':loadbalancer/net/'
            || id_of('k8s-', node, 10) || '/' || substr(md5('net-' || node), 1, 16)
        WHEN what = 'gateway'
        THEN 'arn:aws:ec2:us-east-1:' || account || ':natgateway/' || id_of('nat-0', node, 16)
        WHEN what = 'plan' THEN plan_arn
        WHEN what = 'reservation' THEN reservation_arn END AS line_item_resource_id,
    CASE what WHEN 'tax' THEN 'VAT' END AS line_item_tax_type, cost AS line_item_unblended_cost,
    printf('%.10f', rate) AS line_item_unblended_rate, account AS line_item_usage_account_id,
    'team-' || account_number AS line_item_usage_account_name, amount AS line_item_usage_amount,
    until AS line_item_usage_end_date, since AS line_item_usage_start_date,
    usage_name AS line_item_usage_type, 'USD' AS pricing_currency,
    CASE line_kind WHEN 'DiscountedUsage' THEN '1yr' END AS pricing_lease_contract_length,
    CASE line_kind WHEN 'DiscountedUsage' THEN 'standard' END AS pricing_offering_class,
    CASE WHEN what = 'instance' THEN price WHEN line_kind = 'Usage' THEN cost END
        AS pricing_public_on_demand_cost,
    CASE WHEN what = 'instance' THEN printf('%.10f', price)
        WHEN line_kind = 'Usage' THEN printf('%.10f', list_rate) END AS pricing_public_on_demand_rate,
    CASE line_kind WHEN 'DiscountedUsage' THEN 'No Upfront' END AS pricing_purchase_option,
    CASE WHEN line_type = 'Usage' THEN sku || '.JRTCKXETXF.6YS6EN2CT7' END AS pricing_rate_code,
    CASE WHEN line_type = 'Usage' THEN (draw(usage_name, 'rate', 9000000000) + 1000000000)::VARCHAR END
        AS pricing_rate_id,
    CASE WHEN what = 'instance' AND node % 4 = 3 THEN 'Spot' WHEN line_type = 'Usage' THEN 'OnDemand' END
        AS pricing_term,
    unit AS pricing_unit,
    MAP {'product_name': product_code, 'instance_type': instance_type, 'vcpu': vcpu, 'memory': memory}
        AS product,
    CASE what WHEN 'instance' THEN family END AS product_instance_family,
    CASE what WHEN 'instance' THEN instance_type END AS product_instance_type,
    'US East (N. Virginia)' AS product_location, 'AWS Region' AS product_location_type,
    operation AS product_operation, unit AS product_pricing_unit,
    CASE what WHEN 'instance' THEN 'Compute Instance' WHEN 'volume' THEN 'Storage' ELSE 'Data Transfer' END
        AS product_product_family,
    'us-east-1' AS product_region_code, product_code AS product_servicecode,
    sku AS product_sku, usage_name AS product_usagetype,
    NULL::DOUBLE AS reservation_amortized_upfront_cost_for_usage,
    NULL::DOUBLE AS reservation_amortized_upfront_fee_for_billing_period,
    CASE line_kind WHEN 'DiscountedUsage' THEN round(price * 0.6, 10) END AS reservation_effective_cost,
    CASE line_kind WHEN 'DiscountedUsage' THEN round(price * 0.6, 10) END
        AS reservation_recurring_fee_for_usage,
    reservation_arn AS reservation_reservation_a_r_n,
    CASE line_kind WHEN 'RIFee' THEN 0::DOUBLE END
        AS reservation_unused_amortized_upfront_fee_for_billing_period,
    CASE line_kind WHEN 'RIFee' THEN round(82.944::DOUBLE * draw(hour, 'unused', 100) / 1000, 10) END
        AS reservation_unused_recurring_fee,
    MAP {'user_cluster': 'prod', 'user_team': 'team-' || account_number} AS resource_tags,
    plan_arn AS savings_plan_savings_plan_a_r_n,
    CASE line_kind WHEN 'SavingsPlanCoveredUsage' THEN round(price * 0.72, 10) END
        AS savings_plan_savings_plan_effective_cost,
    CASE line_kind WHEN 'SavingsPlanCoveredUsage' THEN round(price * 0.72, 10) END
        AS savings_plan_savings_plan_rate,
    CASE what WHEN 'plan' THEN 25::DOUBLE END AS savings_plan_total_commitment_to_date,
    CASE what WHEN 'plan' THEN (250 - draw(hour, 'unused', 26)) / 10 END AS savings_plan_used_commitment
FROM charged;
