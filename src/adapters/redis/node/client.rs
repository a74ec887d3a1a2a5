//! What is used of the client library (fred).
//!
//! Its cluster mode is not: under ASK it gave callers *other callers'* replies, one dead primary stalled all shards, and
//! by default commands ran twice (docs/decisions/0001-own-slot-routing.md). What is used is its *centralized* client,
//! one per connection, with everything clever switched off:
//!
//! * `max_command_attempts = 1`, so nothing runs twice behind our back;
//! * `max_command_buffer_len = 0`: its bounded channel can end the client; the bound is a semaphore in `node.rs`;
//! * `fail_fast` on every command: nothing queues while there is no connection.

use std::time::Duration;

use bytes::Bytes;
use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::types::config::{Config, Options, ReconnectPolicy, Server, ServerConfig, TlsConnector};
use fred::types::{Builder, ClusterHash, CustomCommand, Value};

use crate::adapters::redis::address::Address;
use crate::adapters::redis::reply::{Command, NodeError, Reply};
use crate::adapters::redis::settings::NodeSettings;

/// Pause before a connection is tried again, and as much again at random, so that a crowd of processes does not come
/// back in one instant.
pub const RECONNECT_PAUSE_MS: u32 = 50;
/// Data that no acknowledgement came for in this time ends a connection: a machine that vanished sends no RST.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(2);

/// Sends commands in order on one connection; one result for each, or a single error for all.
pub async fn send(
    client: &Client,
    commands: &[Command],
    asking: bool,
    within: Duration,
    fail_fast: bool,
) -> Vec<Result<Reply, NodeError>> {
    let options = Options { timeout: Some(within), max_attempts: Some(1), fail_fast, ..Options::default() };
    let pipeline = client.pipeline().with_options(&options);
    let custom = |name| CustomCommand::new_static(name, ClusterHash::FirstKey, false);
    for command in commands {
        // Queued in memory only: neither of these awaits anything or can fail.
        if asking {
            let _queued: Result<Value, _> = pipeline.custom(custom("ASKING"), Vec::<Value>::new()).await;
        }
        let arguments: Vec<Value> = command.arguments.iter().cloned().map(Value::Bytes).collect();
        let _queued: Result<Value, _> = pipeline.custom(custom(command.name), arguments).await;
    }
    pipeline
        .try_all::<Value>()
        .await
        .into_iter()
        .map(|answer| answer.map_err(|error| classify(&error)).and_then(reply))
        .collect()
}

fn reply(value: Value) -> Result<Reply, NodeError> {
    Ok(match value {
        Value::Null => Reply::Nil,
        Value::Integer(number) => Reply::Number(number),
        Value::Boolean(yes) => Reply::Number(i64::from(yes)),
        Value::String(text) => Reply::Bytes(text.into_inner()),
        Value::Bytes(bytes) => Reply::Bytes(bytes),
        Value::Array(items) => Reply::List(items.into_iter().map(reply).collect::<Result<_, _>>()?),
        other => return Err(NodeError::Refused(format!("a reply of an unknown kind: {:?}", other.kind()))),
    })
}

/// Which of fred's errors prove that a command did not run (its source, 10.1.0; each was provoked).
fn classify(error: &fred::error::Error) -> NodeError {
    use fred::error::ErrorKind;
    let text = error.details();
    match (error.kind(), text) {
        // The gate before sending; a channel whose receiver is gone.
        (ErrorKind::Canceled, "Connection closed unexpectedly.")
        | (ErrorKind::Unknown, "Failed to send command to router." | "Client is not initialized.") => {
            NodeError::NotSent(text.to_string())
        }
        (ErrorKind::Backpressure, _) => NodeError::Overloaded(text.to_string()),
        (ErrorKind::Timeout, _) => NodeError::TimedOut(text.to_string()),
        // What a server said; else IO, "Too many failed write attempts.", "Canceled.": sent, perhaps.
        _ => NodeError::parse(text).unwrap_or_else(|| NodeError::Ambiguous(text.to_string())),
    }
}

pub fn build(address: &Address, settings: &NodeSettings) -> Client {
    let config = Config {
        server: ServerConfig::Centralized { server: Server::new(address.host.clone(), address.port) },
        username: settings.user.clone(),
        password: settings.password.clone(),
        tls: settings.tls.as_ref().map(|tls| TlsConnector::from(rustls::ClientConfig::clone(tls)).into()),
        // The first attempt is made at once; `supervise` makes the next ones.
        fail_fast: true,
        ..Config::default()
    };
    let mut policy = ReconnectPolicy::new_constant(0, RECONNECT_PAUSE_MS);
    policy.set_jitter(RECONNECT_PAUSE_MS);
    let mut builder = Builder::from_config(config);
    builder
        .with_connection_config(|connection| {
            connection.connection_timeout = settings.connect_timeout;
            connection.internal_command_timeout = settings.connect_timeout;
            connection.max_command_attempts = 1;
            connection.max_redirections = 1;
            connection.max_command_buffer_len = 0;
            connection.auto_client_setname = false;
            connection.tcp.nodelay = Some(true);
            connection.tcp.user_timeout = Some(UNACKNOWLEDGED_MAX);
        })
        .set_policy(policy);
    // Only a missing config makes `build` fail, and it was given above.
    builder.build().expect("a builder with a config builds")
}

/// The digest by which Redis names a script.
pub fn sha1_hex(text: &str) -> Bytes {
    Bytes::from(fred::util::sha1_hash(text))
}
