//! Promises about records and about the deployment itself.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use futures_util::future::join_all;
use headcount::domain::element::{HashKey, UserHashing};
use headcount::store::Stores;
use headcount::store::deployment::{Facts, SCHEMA};
use headcount::store::records::{Put, Record, RecordKind};

use super::{fresh_name, insist};

pub async fn records_are_compared_and_set(stores: &Stores) {
    let id = fresh_name("record");
    let records = &stores.records;
    assert_eq!(records.get(RecordKind::Event, &id).await, Ok(None));
    assert_eq!(records.put(RecordKind::Event, &id, 1, Bytes::new()).await, Ok(Put::Conflict(None)));
    for version in 0..5 {
        let write = |i: u64| {
            let (records, id) = (records.clone(), id.clone());
            async move {
                let body = Bytes::from(format!("version {version} of {i}"));
                records.put(RecordKind::Event, &id, version, body.clone()).await.map(|put| (put, body))
            }
        };
        let answers = join_all((0..50).map(write)).await;
        let mut written = Vec::new();
        let mut shown = Vec::new();
        for answer in answers {
            match answer {
                Ok((Put::Written { version: new }, body)) => written.push(Record { version: new, body }),
                Ok((Put::Conflict(standing), _)) => shown.extend(standing),
                Err(error) => assert!(error.retry_may_help(), "{error}"),
            }
        }
        assert_eq!(written.len(), 1, "one writer wins version {version}");
        assert_eq!(written[0].version, version + 1);
        assert!(shown.iter().all(|record| *record == written[0]), "a loser sees the winner's");
        assert_eq!(records.get(RecordKind::Event, &id).await, Ok(Some(written.remove(0))));
    }
    assert_eq!(records.get(RecordKind::Campaign, &id).await, Ok(None), "kinds are apart");
    let binary: Bytes = (0..=255).collect::<Vec<u8>>().into();
    let put = records.put(RecordKind::Campaign, &id, 0, binary.clone()).await;
    assert_eq!(put, Ok(Put::Written { version: 1 }));
    assert_eq!(records.get(RecordKind::Campaign, &id).await.unwrap().unwrap().body, binary);
}

pub async fn lists_show_each_id_once(stores: &Stores) {
    let prefix = fresh_name("listed");
    let mut expected = HashSet::new();
    for i in 0..200 {
        let id = format!("{prefix}/{i}");
        let body = Bytes::from_static(b"{}");
        let put = || stores.records.put(RecordKind::Campaign, &id, 0, body.clone());
        assert_eq!(insist(put).await, Put::Written { version: 1 });
        expected.insert(id);
    }
    for limit in [1, 17, 1000] {
        let mut seen: HashMap<String, u32> = HashMap::new();
        let mut cursor = None;
        loop {
            let page = stores.records.list(RecordKind::Campaign, cursor.as_deref(), limit).await.unwrap();
            assert!(page.ids.len() <= limit, "{} ids on a page of {limit}", page.ids.len());
            page.ids.into_iter().for_each(|id| *seen.entry(id).or_default() += 1);
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert!(seen.values().all(|times| *times == 1), "pages of {limit}");
        let ours: HashSet<String> = seen.into_keys().filter(|id| id.starts_with(&prefix)).collect();
        assert_eq!(ours, expected, "pages of {limit}");
    }
    let events = stores.records.list(RecordKind::Event, None, 1000).await.unwrap();
    assert!(events.ids.iter().all(|id| !id.starts_with(&prefix)), "kinds are apart");
}

pub async fn a_deployment_agrees(stores: &Stores) {
    let deployment = &stores.deployment;
    let propose = |i: u8| async move { deployment.hash_key([i; 16]).await.unwrap() };
    let keys = join_all((1..20).map(propose)).await;
    assert!(keys.iter().all(|key| *key == keys[0]), "one key for all");
    assert!((1..20).any(|i| keys[0] == [i; 16]), "one of those that were proposed");
    assert_eq!(deployment.hash_key([99; 16]).await, Ok(keys[0]));

    let fingerprint = UserHashing::Keyed(HashKey::from_bytes(keys[0])).fingerprint().0;
    let mine = Facts { schema: SCHEMA, zone: "Asia/Shanghai".to_owned(), fingerprint };
    assert_eq!(deployment.agree(&mine).await, Ok(mine.clone()));
    assert_eq!(deployment.agree(&mine).await, Ok(mine.clone()));
    let other = Facts { zone: "UTC".to_owned(), ..mine.clone() };
    assert_eq!(deployment.agree(&other).await, Ok(mine), "the first that was written stands");

    let health = deployment.health();
    assert!(!health.nodes.is_empty() && health.nodes.iter().all(|node| node.up), "{health:?}");
    assert!(!deployment.describe().is_empty());
}
