//! Programs that a test starts with their output in files, waits for, and ends.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use prorata_testkit::wait::eventually;

/// Maximum length of the part of a log that is shown after a failure, in characters.
const SHOWN: usize = 6_000;

/// Returns a command of the program under test: the binary that `PRORATA_BINARY` names, or else a binary that
/// is built once from the working tree.
pub fn prorata() -> Command {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    let binary = BINARY.get_or_init(|| std::env::var_os("PRORATA_BINARY").map_or_else(build, PathBuf::from));
    Command::new(binary)
}

fn build() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let build = ["build", "--quiet", "-p", "prorata"];
    assert!(Command::new(env!("CARGO")).args(build).current_dir(root).status().unwrap().success());
    let profile = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_owned();
    profile.with_file_name("debug").join("prorata")
}

/// A running program.
#[derive(Debug)]
pub struct Program {
    child: Child,
    name: String,
    output: PathBuf,
    log: PathBuf,
}

/// The result of a program that has ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit code; `None` after a signal.
    pub code: Option<i32>,
    /// The standard output.
    pub output: String,
    /// The standard error.
    pub log: String,
}

impl Program {
    /// Starts a command, with its output in files of `folder`.
    pub fn start(mut command: Command, name: &str, folder: &Path) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{name}-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let (output, log) = (folder.join(format!("{name}.out")), folder.join(format!("{name}.log")));
        command.stdin(Stdio::null());
        command.stdout(File::create(&output).unwrap()).stderr(File::create(&log).unwrap());
        let child = command.spawn().unwrap();
        Self { child, name, output, log }
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns its standard error so far.
    pub fn log(&self) -> String {
        read(&self.log)
    }

    /// Returns the end of the log, for the message of a failed test.
    pub fn tail(&self) -> String {
        let log = self.log();
        let from = log.char_indices().rev().nth(SHOWN).map_or(0, |(index, _)| index);
        format!("\n-- log of {}:\n{}", self.name, log.get(from..).unwrap_or_default())
    }

    /// Sends a signal such as `STOP`.
    pub fn signal(&self, signal: &str) {
        send(signal, self.id());
    }

    /// Kills the program, and waits until it is gone.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Fails if it has ended.
    pub fn assert_running(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "{} has ended: {ended:?}{}", self.name, self.tail());
    }

    /// Returns whether it is still running.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits until it ends on its own.
    pub fn wait(mut self) -> Ended {
        let code = eventually(&format!("{} ends", self.name), || {
            self.child.try_wait().unwrap().ok_or_else(|| format!("it runs{}", self.tail()))
        });
        Ended { code: code.code(), output: read(&self.output), log: self.log() }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The child may have ended already.
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

impl Ended {
    /// Fails unless it succeeds. Returns its output.
    pub fn succeeded(self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.output, self.log);
        self.output
    }
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

/// Sends a signal to a process.
pub fn send(signal: &str, process: u32) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{signal} {process}")]).status().unwrap();
    assert!(sent.success(), "signal {signal} to process {process}");
}
