//! The command line.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::api::state::AdminToken;
use crate::ask::{NoAnswer, Question};
use crate::audit_command;
use crate::config::environment::Environment;
use crate::config::variable::{Effective, Shown, Variable};
use crate::config::variables::VARIABLES;
use crate::config::{Config, Loaded, load};
use crate::reconcile_command::{self, Wanted};

/// Headcount: how many different people came, and how many places are left.
///
/// Without a command it serves, until SIGTERM or SIGINT. It is set up by environment variables.
#[derive(Parser, Debug)]
#[command(version, about, long_about, after_help = main_variables(), after_long_help = all_variables())]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Print the settings in force, without secrets
    Config {
        /// As the table of docs/CONFIGURATION.md
        #[arg(long, hide = true)]
        markdown: bool,
    },
    /// Check the settings and exit: 1 if a value is bad or a HEADCOUNT_ name unknown
    Check,
    /// Print a campaign's books: where every unit is, and whether the two sides agree
    ///
    /// Asks the admin listener of a running gateway, with HEADCOUNT_ADMIN_TOKEN where that is set. Any gateway of the
    /// deployment will do: they share one store. Exit code 0: it balances; 1: it does not, or cannot be had.
    Audit {
        /// The campaign's id, as it was created
        campaign: String,
        /// The admin listener, http://host:port [default: HEADCOUNT_ADMIN_LISTEN on this machine]
        #[arg(long)]
        url: Option<String>,
    },
    /// Compare a campaign's store with its ledger, unit by unit, and print every difference
    ///
    /// Asks the admin listener of a running gateway that has the ledger, as audit does. Exit code 0: they agree, or were
    /// made to; 1: they differ, or it cannot be had.
    Reconcile {
        /// The campaign's id, as it was created
        campaign: String,
        /// Bring the ledger what only the store has
        #[arg(long, conflicts_with = "from_ledger")]
        repair: bool,
        /// Rebuild what the store has lost, so that nobody gets a second unit
        #[arg(long)]
        from_ledger: bool,
        /// Rebuild although the ledger may lack the last claims: their units may be sold again
        #[arg(long, requires = "from_ledger")]
        accept_loss: bool,
        /// The admin listener, http://host:port [default: HEADCOUNT_ADMIN_LISTEN on this machine]
        #[arg(long)]
        url: Option<String>,
    },
}

/// Runs what the command line asks for; `serve` is called with the settings when that is to serve.
pub fn run(cli: Cli, environment: &Environment, serve: impl FnOnce(Config) -> ExitCode) -> ExitCode {
    if let Some(Command::Config { markdown: true }) = cli.command {
        print!("{}", markdown(VARIABLES));
        return ExitCode::SUCCESS;
    }
    let loaded = match load(environment) {
        Ok(loaded) => loaded,
        Err(bad) => {
            eprintln!("headcount: {} of the settings cannot be used:", bad.len());
            for bad in bad {
                eprintln!("  {bad}");
            }
            return ExitCode::FAILURE;
        }
    };
    for unknown in &loaded.unknown {
        eprintln!("headcount: {unknown}");
    }
    match cli.command {
        None => serve(loaded.config),
        Some(Command::Config { .. }) => {
            print!("{}", listing(&loaded.effective));
            ExitCode::SUCCESS
        }
        Some(Command::Check) => check(&loaded),
        Some(Command::Audit { campaign, url }) => audit(&question(&loaded.config, campaign, url)),
        Some(Command::Reconcile { campaign, repair, from_ledger, accept_loss, url }) => {
            reconcile(&question(&loaded.config, campaign, url), Wanted { repair, from_ledger, accept_loss })
        }
    }
}

fn question(config: &Config, campaign: String, url: Option<String>) -> Question {
    let url = url.unwrap_or_else(|| format!("http://{}", reachable(config.admin_listen)));
    Question { url, bearer: config.api.admin_token.as_ref().map(AdminToken::bearer), campaign }
}

fn audit(question: &Question) -> ExitCode {
    match audit_command::ask(question) {
        Ok(books) => {
            print!("{books}");
            books.exit_code()
        }
        Err(error) => failed(error),
    }
}

fn reconcile(question: &Question, wanted: Wanted) -> ExitCode {
    match reconcile_command::ask(question, wanted, |progress| eprintln!("{progress} …")) {
        Ok(report) => {
            print!("{report}");
            report.exit_code()
        }
        Err(error) => failed(error),
    }
}

fn failed(error: NoAnswer) -> ExitCode {
    eprintln!(
        "headcount: {}",
        match error {
            NoAnswer::Unauthorized =>
                "the gateway wants its admin token: set HEADCOUNT_ADMIN_TOKEN to it and try again".to_owned(),
            NoAnswer::Unreachable(reason) =>
                format!("{reason}; is a gateway running, and is this its HEADCOUNT_ADMIN_LISTEN? Else give --url"),
            NoAnswer::Other(reason) => reason,
        }
    );
    ExitCode::FAILURE
}

/// Where a listener on this machine is reached: one on all addresses has none of its own.
fn reachable(mut listen: SocketAddr) -> SocketAddr {
    if listen.ip().is_unspecified() {
        listen.set_ip(if listen.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    listen
}

fn check(loaded: &Loaded) -> ExitCode {
    if loaded.unknown.iter().any(|unknown| !unknown.is_service_link) {
        return ExitCode::FAILURE;
    }
    println!("headcount: the settings are good");
    ExitCode::SUCCESS
}

/// One line per variable, as a shell would read it.
fn listing(effective: &[Effective]) -> String {
    effective.iter().fold(String::new(), |mut text, line| {
        let mark = if line.is_default { "  # default" } else { "" };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}={}{mark}", line.name, line.value);
        text
    })
}

/// The table of `docs/CONFIGURATION.md`.
pub fn markdown(variables: &[Variable]) -> String {
    let head = "| variable | default | what it does, and why the default |\n|---|---|---|\n".to_owned();
    variables.iter().fold(head, |mut text, variable| {
        let default =
            if variable.default.is_empty() { "not set".to_owned() } else { format!("`{}`", variable.default) };
        let secret = if variable.shown == Shown::Plain { "" } else { " Also as a file: the same name with `_FILE`." };
        let _ = writeln!(text, "| `{}` | {default} | {}{secret} |", variable.name, variable.meaning);
        text
    })
}

/// The variables that most deployments set.
const MAIN: [&str; 6] = [
    "HEADCOUNT_LISTEN",
    "HEADCOUNT_ADMIN_LISTEN",
    "HEADCOUNT_ADMIN_TOKEN",
    "HEADCOUNT_REDIS_URL",
    "HEADCOUNT_DATA_DIR",
    "HEADCOUNT_SHARDS",
];

fn main_variables() -> String {
    let main = VARIABLES.iter().filter(|variable| MAIN.contains(&variable.name));
    format!("Main variables (--help shows all; docs/CONFIGURATION.md, docs/API.md):\n{}", help(main))
}

fn all_variables() -> String {
    format!("Variables (docs/CONFIGURATION.md; calls: docs/API.md):\n{}", help(VARIABLES.iter()))
}

fn help<'a>(variables: impl Iterator<Item = &'a Variable>) -> String {
    variables.fold(String::new(), |mut text, variable| {
        let default = if variable.default.is_empty() { "not set" } else { variable.default };
        let _ = writeln!(text, "  {} [{default}]\n      {}", variable.name, variable.meaning);
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_with(arguments: &[&str], pairs: &[(&str, &str)]) -> (ExitCode, bool) {
        let cli = Cli::try_parse_from(std::iter::once(&"headcount").chain(arguments)).unwrap();
        let mut served = false;
        let code = run(cli, &Environment::of(pairs.iter().copied()), |_| {
            served = true;
            ExitCode::SUCCESS
        });
        (code, served)
    }

    #[test]
    fn it_serves_unless_told_otherwise_or_set_up_badly() {
        assert_eq!(run_with(&[], &[("HEADCOUNT_SHARD", "8")]), (ExitCode::SUCCESS, true));
        assert_eq!(run_with(&[], &[("HEADCOUNT_SHARDS", "12")]), (ExitCode::FAILURE, false));
        assert_eq!(run_with(&["config"], &[]), (ExitCode::SUCCESS, false));
    }

    #[test]
    fn check_fails_on_unknown_names_but_not_on_service_links() {
        assert_eq!(run_with(&["check"], &[]).0, ExitCode::SUCCESS);
        assert_eq!(run_with(&["check"], &[("HEADCOUNT_SHARD", "8")]).0, ExitCode::FAILURE);
        assert_eq!(run_with(&["check"], &[("HEADCOUNT_PORT", "tcp://10.0.0.1:80")]).0, ExitCode::SUCCESS);
    }

    #[test]
    fn a_listener_on_all_addresses_is_asked_on_loopback() {
        let cases =
            [("0.0.0.0:9090", "127.0.0.1:9090"), ("[::]:9090", "[::1]:9090"), ("10.0.0.1:9090", "10.0.0.1:9090")];
        for (listen, asked) in cases {
            assert_eq!(reachable(listen.parse().unwrap()), asked.parse().unwrap());
        }
    }

    #[test]
    fn the_documented_table_is_the_one_in_the_code() {
        let page = include_str!("../docs/CONFIGURATION.md");
        let documented =
            page.split("<!-- environment -->\n").nth(1).and_then(|rest| rest.split("<!-- /environment -->").next());
        let is_same = documented == Some(markdown(VARIABLES).as_str());
        assert!(is_same, "put what `headcount config --markdown` prints into docs/CONFIGURATION.md");
    }
}
