//! `prorata agreements import`: builds a file of agreements from the documents in which providers list
//! commitments.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use prorata_collector::agreements::{AgreementsImporter, MachineSize};
use prorata_collector::prices::LeftOut;
use prorata_inspect::text::plain;
use prorata_schemas::money::UnitPrice;

use crate::commands::feed::prices::replace;
use crate::failure::Failure;
use crate::report;

/// Other actions on agreements.
#[derive(Clone, Debug, Subcommand)]
pub enum AgreementsAction {
    /// Build a file of agreements from lists of commitments of AWS, Azure and Google
    Import(AgreementsImportArgs),
}

/// Arguments of `prorata agreements import`.
#[derive(Clone, Debug, Args)]
pub struct AgreementsImportArgs {
    /// Documents that list commitments, as JSON or as Azure's CSV
    ///
    /// Output of `gcloud compute commitments list --format=json`, `aws ec2 describe-reserved-instances` or
    /// `az reservations reservation list`, or the CSV export of reservations in Azure's portal. The fields of
    /// a document determine its kind.
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Organization that owns the agreements
    #[arg(long, value_name = "ID")]
    pub organization: String,
    /// Currency of the agreements (ISO 4217)
    #[arg(long, value_name = "CODE", default_value = "USD")]
    pub currency: String,
    /// Region of AWS's reserved instances that do not name a zone
    #[arg(long, value_name = "REGION")]
    pub region: Option<String>,
    /// Cost of the whole commitment per hour, for documents that have none; may be repeated
    #[arg(long = "hourly-cost", value_name = "ID=AMOUNT", value_parser = hourly_cost)]
    pub hourly_costs: Vec<(String, UnitPrice)>,
    /// Size of a machine type of AWS or Azure; may be repeated
    #[arg(long = "machine", value_name = "TYPE=VCPU,GIB[,GPUS,MODEL]", value_parser = machine)]
    pub machines: Vec<(String, MachineSize)>,
    /// File to write the agreements to, other than the documents [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Returns the values of a repeated flag by their names.
fn by_name<V: Clone>(flag: &str, values: &[(String, V)]) -> Result<BTreeMap<String, V>, Failure> {
    let mut named = BTreeMap::new();
    for (name, value) in values {
        if named.insert(name.clone(), value.clone()).is_some() {
            return Err(Failure::usage(format!("{flag} has '{name}' twice; give it once")));
        }
    }
    Ok(named)
}

fn hourly_cost(text: &str) -> Result<(String, UnitPrice), String> {
    let (id, cost) = text.split_once('=').ok_or("write it as ID=AMOUNT")?;
    let cost: UnitPrice = cost.parse().map_err(|error| format!("{error}"))?;
    if cost < UnitPrice::ZERO {
        return Err(format!("the cost {cost} is negative"));
    }
    Ok((id.to_owned(), cost))
}

fn machine(text: &str) -> Result<(String, MachineSize), String> {
    let form = || "write it as TYPE=VCPU,GIB or TYPE=VCPU,GIB,GPUS,MODEL".to_owned();
    let (name, of) = text.split_once('=').ok_or_else(form)?;
    let parts: Vec<&str> = of.split(',').collect();
    let (vcpu, gib, gpus) = match *parts.as_slice() {
        [vcpu, gib] => (vcpu, gib, None),
        [vcpu, gib, gpus, model] => (vcpu, gib, Some((gpus, model))),
        _ => return Err(form()),
    };
    let number = |text: &str| text.parse::<u32>().map_err(|_| form());
    let memory_gib: UnitPrice = gib.parse().map_err(|_| form())?;
    if memory_gib < UnitPrice::ZERO {
        return Err(form());
    }
    let machine = MachineSize {
        vcpu: number(vcpu)?,
        memory_gib,
        gpu: gpus.map_or(Ok(0), |(gpus, _)| number(gpus))?,
        gpu_model: gpus.map(|(_, model)| model.into()),
    };
    Ok((name.to_owned(), machine))
}

/// Writes a file of agreements, and reports on standard error what was left out.
///
/// # Errors
/// If a file cannot be read or written, if a cost or a machine is given twice, or if no agreement was found.
pub fn run(args: &AgreementsImportArgs) -> anyhow::Result<ExitCode> {
    if args.output.as_ref().is_some_and(|to| args.files.contains(to)) {
        return Err(Failure::usage("--output names one of the documents; name another file").into());
    }
    let mut importer = AgreementsImporter::default();
    importer.currency.clone_from(&args.currency);
    importer.region.clone_from(&args.region);
    importer.hourly_costs = by_name("--hourly-cost", &args.hourly_costs)?;
    importer.machines = by_name("--machine", &args.machines)?;
    for path in &args.files {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| Failure::usage(format!("'{name}': {error}")))?;
        importer.read(&name, file);
    }
    let (yaml, count, imported) = importer.finish(&args.organization);
    let mut summary = format!("{count} commitments");
    for (reason, LeftOut { count, example }) in &imported.skipped {
        summary += &format!("\n{count} left out: {reason}, such as {example}");
    }
    if count == 0 {
        return Err(Failure::usage(format!("nothing to import; {}", summary.replace('\n', "; "))).into());
    }
    match &args.output {
        Some(to) => replace(to, |mut file| file.write_all(yaml.as_bytes()))
            .map_err(|error| Failure::storage(format!("failed to write '{}': {error}", to.display())))?,
        None => report::print(yaml.trim_end())?,
    }
    // The file is already written, so the lines about it may get lost.
    for line in summary.lines() {
        let _ = writeln!(io::stderr(), "{}", plain(line));
    }
    Ok(ExitCode::SUCCESS)
}
