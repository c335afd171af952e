//! The commands of the program: arguments, the work, and the output at the end.
//!
//! `prorata --help` lists the commands without groups. They are too many for one folder, so two groups have
//! folders of their own. `feed` contains `agreements`, `bills`, `collect` and `prices`, which create input
//! for prorata. `look` contains `diff`, `explain`, `export`, `report` and `show`, which read a lake and write
//! nothing to it. Each other command is a file or folder here.

pub mod backfill;
pub mod check;
pub mod close;
pub mod dead_letters;
pub mod feed;
pub mod generate;
pub mod look;
pub mod maintain;
pub mod ready;
pub mod replay;
pub mod schemas;
pub mod work;
