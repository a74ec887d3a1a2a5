//! `headcount audit`, the command.

use std::process::{Command, Output};

use serde_json::json;

use crate::harness::eventually;
use crate::harness::gateway::Gateway;
use crate::harness::process::free_port;

const TOKEN: &str = "correct-horse-battery";

/// Runs the command to its end; it is given this environment and no other.
fn audit(arguments: &[&str], env: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headcount"));
    command.arg("audit").args(arguments).env_clear().envs(env.iter().copied());
    let Output { status, stdout, stderr } = command.output().expect("the binary");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_books_of_a_campaign_are_printed_and_balance() {
    let gateway = Gateway::start(&[("HEADCOUNT_ADMIN_TOKEN", TOKEN)]).await;
    let (url, listen) = (format!("http://{}", gateway.admin.authority), gateway.admin.authority.clone());
    let body = json!({ "admission": "hard", "quota": 10, "shards": 2 }).to_string();
    let token = [("authorization", &*format!("Bearer {TOKEN}"))];
    gateway.admin.send(hyper::Method::PUT, "/v1/campaigns/a%2Fb", &token, body.into()).await.expect(201);
    eventually("stock that is laid out", async || {
        gateway.public.get("/v1/campaigns/a%2Fb/remaining").await.status == 200
    })
    .await;
    for user in ["ada", "bob", "cleo"] {
        gateway.public.post("/v1/claims", &json!({ "campaign": "a/b", "user": user })).await.expect(201);
    }
    // By the address that the gateway itself is given, and by --url.
    let env = [("HEADCOUNT_ADMIN_TOKEN", TOKEN), ("HEADCOUNT_ADMIN_LISTEN", &*listen)];
    let by_address = audit(&["a/b"], &env);
    let by_url = audit(&["a/b", "--url", &url], &env[..1]);
    assert_eq!(by_address, by_url);
    let (code, printed, complaints) = by_address;
    assert_eq!((code, &*complaints), (Some(0), ""), "{printed}");
    println!("{printed}");
    let words: Vec<Vec<&str>> = printed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words[0][..3], ["shard", "status", "available"]);
    assert_eq!((words[1][0], words[2][0], words[3][0]), ("0", "1", "total"));
    assert!(printed.contains("issued      10\n") && printed.contains("found       10 ("), "{printed}");
    assert!(printed.contains("granted     3 units: "), "{printed}");
    assert!(printed.contains("a/b balances: "), "{printed}");

    let (code, printed, complaint) = audit(&["nothing", "--url", &url], &env);
    assert_eq!((code, &*printed), (Some(1), ""));
    assert!(complaint.contains("nothing: There is no such campaign"), "{complaint}");
    let (code, _, complaint) = audit(&["a/b", "--url", &url], &[]);
    assert_eq!(code, Some(1));
    assert!(complaint.contains("HEADCOUNT_ADMIN_TOKEN"), "{complaint}");
    let (code, _, complaint) = audit(&["a/b", "--url", &format!("http://{}", gateway.public.authority)], &env);
    assert_eq!(code, Some(1));
    assert!(complaint.contains("There is no such call"), "{complaint}");
}

#[test]
fn a_gateway_that_is_not_there_is_told() {
    let url = format!("http://127.0.0.1:{}", free_port());
    let (code, printed, complaint) = audit(&["sale", "--url", &url], &[]);
    assert_eq!((code, &*printed), (Some(1), ""));
    assert!(complaint.contains(&url) && complaint.contains("Connection refused"), "{complaint}");
    let (code, _, complaint) = audit(&["sale", "--url", "https://127.0.0.1:1"], &[]);
    assert_eq!(code, Some(1));
    assert!(complaint.contains("plain HTTP"), "{complaint}");
}
