//! Loads the settings, starts telemetry, runs the program.

use std::process::ExitCode;

use clap::Parser;
use headcount::cli::{self, Cli};
use headcount::config::Config;
use headcount::config::environment::Environment;
use headcount::{app, runtime};

// A request makes many small allocations: axum took 7.6 us of CPU a request with it, 8.1 with glibc's (docs/decisions).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::run(Cli::parse(), &Environment::of_process(), serve)
}

fn serve(config: Config) -> ExitCode {
    match start(config) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("headcount: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start(config: Config) -> Result<ExitCode, String> {
    runtime::telemetry::start_logs(&config.log)?;
    let metrics = runtime::telemetry::start_metrics()?;
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    if config.workers > 0 {
        threads.worker_threads(config.workers);
    }
    let threads = threads.enable_all().build().map_err(|error| format!("cannot start threads: {error}"))?;
    let code = threads.block_on(app::run(config, metrics)).map_err(|error| error.to_string())?;
    // Every task has been waited for; what is left hangs on a store that does not answer.
    threads.shutdown_background();
    Ok(code)
}
