//! The program's entry.

mod generate;

use clap::Parser;

/// Commands.
#[derive(Debug, Parser)]
#[command(name = "prorata")]
enum Command {
    /// Writes realistic load, reproducible
    Generate(generate::GenerateArgs),
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::Generate(args) => Ok(generate::run(&args)?),
    }
}
