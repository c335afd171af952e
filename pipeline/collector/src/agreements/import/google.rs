//! Google: the output of `gcloud compute commitments list`.

use serde_json::Value;

use super::{AgreementsImporter, EMPTY, FoundCommitment, NOT_ACTIVE, ONE, UNREADABLE, last, text, whole};

/// Types of commitments that cover all machines of one family and no others, with the family. Every other
/// type covers several families, or only a part of a family. For example, nodes of A3 and of A3 Mega have one
/// family. M4 nodes of all sizes also have one family, and so do X4 nodes.
///
/// Source: Google's public documentation of resource-based commitments, as known in November 2026.
const FAMILIES: &[(&str, &str)] = &[
    ("ACCELERATOR_OPTIMIZED", "a2"),
    ("COMPUTE_OPTIMIZED", "c2"),
    ("COMPUTE_OPTIMIZED_C2D", "c2d"),
    ("COMPUTE_OPTIMIZED_C3", "c3"),
    ("COMPUTE_OPTIMIZED_C3D", "c3d"),
    ("COMPUTE_OPTIMIZED_H3", "h3"),
    ("COMPUTE_OPTIMIZED_H4D", "h4d"),
    ("GENERAL_PURPOSE", "n1"),
    ("GENERAL_PURPOSE_C4", "c4"),
    ("GENERAL_PURPOSE_C4A", "c4a"),
    ("GENERAL_PURPOSE_C4D", "c4d"),
    ("GENERAL_PURPOSE_E2", "e2"),
    ("GENERAL_PURPOSE_N2", "n2"),
    ("GENERAL_PURPOSE_N2D", "n2d"),
    ("GENERAL_PURPOSE_N4", "n4"),
    ("GENERAL_PURPOSE_N4A", "n4a"),
    ("GENERAL_PURPOSE_N4D", "n4d"),
    ("GENERAL_PURPOSE_T2D", "t2d"),
    ("GRAPHICS_OPTIMIZED", "g2"),
    ("MEMORY_OPTIMIZED_M3", "m3"),
    ("STORAGE_OPTIMIZED_Z3", "z3"),
];

/// Takes a resource-based commitment.
pub fn take(import: &mut AgreementsImporter, value: &Value) {
    let id = text(value, "name");
    let status = text(value, "status");
    if !matches!(status, "ACTIVE" | "NOT_YET_ACTIVE") {
        return import.skip(NOT_ACTIVE, || format!("{id}: status '{status}'"));
    }
    if text(value, "category") == "LICENSE" {
        return import.skip("a commitment to licences", || id.to_owned());
    }
    let of = text(value, "type");
    let Some((_, family)) = FAMILIES.iter().find(|(known, _)| *known == of) else {
        let reason = "a type that is not certain to cover one machine family; add the entry by hand";
        return import.skip(reason, || format!("{id}: type '{of}'"));
    };
    let mut found = FoundCommitment {
        id,
        from: text(value, "startTimestamp"),
        to: text(value, "endTimestamp"),
        provider: "gce",
        kind: "COMMITTED_USE_DISCOUNT",
        region: last(text(value, "region")),
        family,
        vcpu: 0,
        memory_gib: 0,
        gpu: 0,
        gpu_model: None,
        hourly_cost: None,
    };
    for resource in value.get("resources").and_then(Value::as_array).into_iter().flatten() {
        if let Err((reason, example)) = add_resource(&mut found, resource) {
            return import.skip(reason, || format!("{id}: {example}"));
        }
    }
    import.add(&found);
}

/// Adds a committed resource. Returns the reason and an example if the commitment must be left out.
fn add_resource<'v>(
    found: &mut FoundCommitment<'v>,
    resource: &'v Value,
) -> Result<(), (&'static str, String)> {
    let kind = text(resource, "type");
    let amount = whole(text(resource, "amount")).ok_or_else(|| (UNREADABLE, format!("amount of {kind}")))?;
    let model = last(text(resource, "acceleratorType"));
    match kind {
        "VCPU" => found.vcpu += amount * ONE,
        // Google counts MiB.
        "MEMORY" => found.memory_gib += amount * (ONE / 1024),
        "ACCELERATOR" if model.is_empty() => return Err((EMPTY, "acceleratorType".to_owned())),
        "ACCELERATOR" if found.gpu_model.is_none_or(|other| other == model) => {
            found.gpu += amount;
            found.gpu_model = Some(model);
        }
        "ACCELERATOR" => {
            let reason = "several GPU models in one commitment; add an entry for each by hand";
            return Err((reason, model.to_owned()));
        }
        // The commitment's cost pays for this resource too, so the other resources alone would be too
        // expensive.
        _ => {
            let reason = "a committed resource other than vCPU, memory and GPU; add the entry by hand";
            return Err((reason, kind.to_owned()));
        }
    }
    Ok(())
}
