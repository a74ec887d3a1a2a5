//! The rounds of testifying.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::service::ledger::testify::{LOOK, Testimony};

pub async fn run(testimony: Arc<Testimony>, stop: CancellationToken) {
    while stop.run_until_cancelled(tokio::time::sleep(LOOK)).await.is_some() {
        if stop.run_until_cancelled(testimony.look()).await.is_none() {
            return;
        }
    }
}
