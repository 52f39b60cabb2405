//! The command `sluicegate` serves the limits of a rules file, checks and explains such files, replays access logs against them, and
//! counts keys in Redis.
//!
//! Only `serve` changes anything. A running service is inspected and changed on its status page.

mod check;
mod explain;
mod inspect;
mod replay;
mod serve;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;

/// Serves the limits of a rules file of Sluicegate, checks such files, explains
/// which limits apply to a request, replays access logs against them, and
/// counts the keys in Redis.
#[derive(Parser)]
#[command(
    name = "sluicegate",
    version,
    max_term_width = 80,
    after_help = "Exit status: 0 good, 1 wrong rules or input, 2 usage or logs that are not understood, 3 above\n--fail-above."
)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check rules files; unset environment variables get placeholders.
    Check {
        /// The files.
        #[arg(required = true)]
        rules: Vec<PathBuf>,
        /// Say what a reload would change, compared with this file.
        #[arg(long, value_name = "OLD")]
        against: Option<PathBuf>,
    },
    /// Say which limits apply to a request, and why; as if nothing had been spent,
    /// unless --store is given.
    Explain(Box<explain::ExplainedRequest>),
    Replay(Box<replay::ReplayArguments>),
    Inspect(inspect::InspectArguments),
    Serve(Box<serve::ServeArguments>),
    /// Print the JSON Schema of rules files.
    Schema,
    /// Print the completions of a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
}

fn main() -> ExitCode {
    let CommandLine { command } = CommandLine::parse();
    let (mut good, mut bad) = (ExitCode::SUCCESS, ExitCode::FAILURE);
    let done = match command {
        Command::Check { rules, against } => check::run(&rules, against.as_deref()),
        Command::Explain(request) => explain::run(&request),
        Command::Replay(asked) => replay::run(&asked).and_then(|replayed| {
            let status = ExitCode::from(replayed.status);
            (good, bad) = (status, status);
            replayed.text
        }),
        Command::Inspect(asked) => inspect::run(&asked),
        Command::Serve(asked) => serve::run(*asked),
        Command::Schema => Ok(sluicegate_rules::json_schema()),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut CommandLine::command(), "sluicegate", &mut script);
            Ok(String::from_utf8_lossy(&script).into_owned())
        }
    };
    let (text, code) = match done {
        Ok(text) => (text, good),
        Err(text) => {
            // A closed standard error is ignored.
            _ = writeln!(io::stderr(), "{text}");
            return bad;
        }
    };
    match io::stdout().write_all(text.as_bytes()) {
        // A reader of only the beginning, such as `head`, has read enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            _ = writeln!(io::stderr(), "the output cannot be written: {error}");
            ExitCode::FAILURE
        }
        _ => code,
    }
}
