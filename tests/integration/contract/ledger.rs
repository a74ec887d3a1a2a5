//! Promises about the ledger: every entry once, in whatever order and however often it comes.

use std::sync::Arc;

use futures_util::future::join_all;
use headcount::domain::id::CampaignId;
use headcount::domain::ledger::entry::{Entry, Subject};
use headcount::domain::ledger::settle::Conflict;
use headcount::domain::quota::claim::{ClaimRecord, ClaimState, UserKey};
use headcount::domain::quota::pool::LogKind;
use headcount::domain::quota::unit::Unit;
use headcount::store::ledger::{Ledger, LedgerBatch, LedgerCampaign, Progress, Written};
use jiff::Timestamp;

use super::ledger_stream::{Sale, user_key, wish};
use super::{fresh_name, told};

/// Runs every promise.
pub async fn upholds_the_promises_of_ledgers(ledger: &Arc<dyn Ledger>) {
    told("campaigns only move forward", campaigns_only_move_forward(ledger)).await;
    told("packets stay as they are", packets_stay_as_they_are(ledger)).await;
    told("progress only moves forward", progress_only_moves_forward(ledger)).await;
    told("a batch written twice changes nothing", a_batch_written_twice_changes_nothing(ledger)).await;
    told("drainers in each other's way lose nothing", drainers_lose_nothing(ledger)).await;
    told("the order of shards does not matter", the_order_of_shards_does_not_matter(ledger)).await;
    told("contradictions are kept apart", contradictions_are_kept_apart(ledger)).await;
    told("an alias stays", an_alias_stays(ledger)).await;
    told("pages show each row once", pages_show_each_row_once(ledger)).await;
}

async fn campaigns_only_move_forward(ledger: &Arc<dyn Ledger>) {
    let first = campaign(3);
    let name = &first.campaign;
    assert_eq!(ledger.campaign(name).await, Ok(None));
    for entered in [&first, &LedgerCampaign { version: 2, phase: "filling".into(), ..first.clone() }, &first] {
        assert_eq!(ledger.enter(entered).await, Ok(()));
        assert_eq!(ledger.campaign(name).await, Ok(Some(first.clone())));
    }
    // Another record under the same version is none: whoever wrote first stands.
    assert_eq!(ledger.enter(&LedgerCampaign { quota: 1, ..first.clone() }).await, Ok(()));
    assert_eq!(ledger.campaign(name).await, Ok(Some(first.clone())));
    let newer = LedgerCampaign {
        version: 4,
        phase: "closed".into(),
        total_cents: Some(i64::MAX),
        closes_at: Some(Timestamp::from_millisecond(1_800_000_000_001).unwrap()),
        document: format!("{{\"é\":\"{}\u{1F680}'; --?\"}}", "x".repeat(200_000)),
        ..first.clone()
    };
    assert_eq!(ledger.enter(&newer).await, Ok(()));
    assert_eq!(ledger.campaign(name).await, Ok(Some(newer.clone())));
    // Names that differ in case or accent alone are other names, up to the longest.
    let base = fresh_name("é");
    let names =
        [base.clone(), base.to_uppercase(), base.replace('é', "e"), format!("{base}{}", "\u{1F680}".repeat(25))];
    for (version, name) in (1..).zip(&names) {
        let entered = LedgerCampaign { campaign: CampaignId::new(name).unwrap(), version, ..first.clone() };
        assert_eq!(ledger.enter(&entered).await, Ok(()));
    }
    for (version, name) in (1..).zip(&names) {
        let found = ledger.campaign(&CampaignId::new(name).unwrap()).await.unwrap().unwrap();
        assert_eq!(found.version, version, "{name}");
    }
}

async fn packets_stay_as_they_are(ledger: &Arc<dyn Ledger>) {
    let name = fresh_campaign();
    let cents: Vec<i64> = (1..=1200).collect();
    assert_eq!(ledger.packets(&name, 1, 10).await, Ok(vec![]));
    assert_eq!(ledger.add_packets(&name, 1, &cents[..700]).await, Ok(()));
    // The same once more, and some others, and numbers that are there with other cents.
    assert_eq!(ledger.add_packets(&name, 1, &cents).await, Ok(()));
    assert_eq!(ledger.add_packets(&name, 600, &[5; 10]).await, Ok(()));
    assert_eq!(ledger.packets(&name, 1, 5000).await, Ok(cents.clone()));
    assert_eq!(ledger.packets(&name, 1101, 50).await, Ok(cents[1100..1150].to_vec()));
    // A number is missing: what comes after it is not shown in its place.
    assert_eq!(ledger.add_packets(&name, 1202, &[7]).await, Ok(()));
    assert_eq!(ledger.packets(&name, 1200, 10).await, Ok(vec![1200]));
    assert_eq!(ledger.packets(&name, 1201, 10).await, Ok(vec![]));
}

async fn progress_only_moves_forward(ledger: &Arc<dyn Ledger>) {
    let name = fresh_campaign();
    let at = |incarnation, ver, behind, at_ms| Progress { incarnation, ver, behind, at_ms };
    let mut stands = at(1, 10, 3, 1000);
    for (told, moves) in [
        (stands, true),
        (at(1, 9, 0, 2000), false),
        (at(1, 10, 0, 900), false),
        (at(1, 10, 0, 1001), true),
        (at(1, 12, 4, 800), true),
        (at(2, 1, 0, 700), true),
        (at(1, 99, 0, 9000), false),
    ] {
        write(ledger, &LedgerBatch { campaign: name.clone(), shard: 2, entries: vec![], progress: told }).await;
        stands = if moves { told } else { stands };
        assert_eq!(ledger.progress(&name).await, Ok(vec![(2, stands)]), "after {told:?}");
    }
    write(ledger, &LedgerBatch { campaign: name.clone(), shard: 0, entries: vec![], progress: stands }).await;
    assert_eq!(ledger.progress(&name).await, Ok(vec![(0, stands), (2, stands)]));
}

async fn a_batch_written_twice_changes_nothing(ledger: &Arc<dyn Ledger>) {
    let (name, sale) = (fresh_campaign(), Sale::run(11, 1, 300, 40));
    let news = &sale.news[0];
    assert!(news.len() > 100, "{}", news.len());
    let mut fresh = 0;
    // Each window holds half of the one before, and is written twice.
    for start in (0..news.len()).step_by(30) {
        let window = news[start..(start + 60).min(news.len())].to_vec();
        let batch = batch(&name, 0, window);
        fresh += write(ledger, &batch).await.fresh;
        let before = all_rows(ledger, &name, 0).await;
        assert_eq!(write(ledger, &batch).await, Written::default());
        assert_eq!(all_rows(ledger, &name, 0).await, before);
    }
    assert_eq!(fresh, sale.total());
    assert_eq!(all_rows(ledger, &name, 0).await, sale.expected_rows(0));
    assert_eq!(ledger.conflicts(&name).await, Ok(0));
}

async fn drainers_lose_nothing(ledger: &Arc<dyn Ledger>) {
    let (name, sale) = (fresh_campaign(), Sale::run(12, 2, 600, 60));
    let drain = |seed: u64| {
        let batches = sale.deliveries(&name, seed, 20..40);
        async move {
            let mut fresh = 0;
            for batch in batches {
                fresh += super::insist(|| ledger.write(&batch)).await.fresh;
            }
            fresh
        }
    };
    let fresh: u64 = join_all((0..4).map(drain)).await.into_iter().sum();
    assert_eq!(fresh, sale.total(), "each entry was new to one of four drainers");
    for shard in 0..2 {
        assert_eq!(all_rows(ledger, &name, shard as u16).await, sale.expected_rows(shard));
    }
    assert_eq!(ledger.conflicts(&name).await, Ok(0));
}

/// Alice holds 17 in shard 3 and lets it expire; it goes to shard 9, where Bob gets it and confirms; Alice claims again.
async fn the_order_of_shards_does_not_matter(ledger: &Arc<dyn Ledger>) {
    let (unit, again) = (Unit::new(17), Unit::new(30));
    let alice = |kind, ver, state, unit, claim_no| (3, entry("alice", kind, ver, state, unit, claim_no));
    let bob = |kind, ver, state| (9, entry("bob", kind, ver, state, unit.returned(), 1));
    let story = [
        alice(LogKind::Grant, 10, ClaimState::Held, unit, 1),
        alice(LogKind::Expire, 11, ClaimState::Expired, unit, 1),
        alice(LogKind::Grant, 12, ClaimState::Held, again, 2),
        bob(LogKind::Grant, 5, ClaimState::Held),
        bob(LogKind::Confirm, 6, ClaimState::Confirmed),
    ];
    for order in permutations(&[0, 1, 2, 3, 4]) {
        let name = fresh_campaign();
        for chunk in order.chunk_by(|one, other| story[*one].0 == story[*other].0) {
            let entries = chunk.iter().map(|index| story[*index].1.clone()).collect();
            let written = write(ledger, &batch(&name, story[chunk[0]].0, entries)).await;
            let fresh = chunk.len() as u64;
            assert_eq!(written, Written { fresh, rows: written.rows, conflicts: vec![] }, "{order:?}");
        }
        let named = |entry: &Entry, name: &str| {
            let mut entry = entry.clone();
            if let Subject::Claim { user_raw, .. } = &mut entry.subject {
                *user_raw = Some(name.to_owned());
            }
            entry
        };
        let of_alice = vec![named(&story[1].1, "alice"), story[2].1.clone()];
        assert_eq!(all_rows(ledger, &name, 3).await, of_alice, "{order:?}");
        assert_eq!(all_rows(ledger, &name, 9).await, vec![named(&story[4].1, "bob")], "{order:?}");
    }
}

async fn contradictions_are_kept_apart(ledger: &Arc<dyn Ledger>) {
    let name = fresh_campaign();
    let grant = |user, ver, unit, claim_no| entry(user, LogKind::Grant, ver, ClaimState::Confirmed, unit, claim_no);
    let standing = [grant("alice", 5, Unit::new(1), 1), grant("bob", 6, Unit::new(2), 1)];
    write(ledger, &batch(&name, 0, standing.to_vec())).await;
    let refund =
        Entry { kind: LogKind::Refund, subject: Subject::Refund(Unit::new(2)), ..grant("nobody", 9, Unit::new(2), 1) };
    let contradicting = [
        // Alice's unit for another one, another unit for Alice's claim, a refund of Bob's.
        (grant("carol", 7, Unit::new(1), 1), &standing[0]),
        (grant("alice", 8, Unit::new(3), 1), &standing[0]),
        (refund, &standing[1]),
    ];
    let good = [grant("dave", 10, Unit::new(4), 1), grant("erin", 11, Unit::new(5), 1)];
    let mut entries = vec![good[0].clone()];
    entries.extend(contradicting.iter().map(|(entry, _)| entry.clone()));
    entries.push(good[1].clone());
    // The drain did not hear that it was done, and tells it once more.
    for time in 0..2 {
        let written = write(ledger, &batch(&name, 0, entries.clone())).await;
        assert_eq!(written.fresh, if time == 0 { 5 } else { 0 });
        let found: Vec<(Entry, &Entry)> =
            written.conflicts.iter().map(|conflict| (conflict.entry.clone(), &conflict.standing)).collect();
        assert_eq!(found, contradicting, "told each time, so that nobody misses it");
        assert_eq!(ledger.conflicts(&name).await, Ok(3), "written once");
        let rows = all_rows(ledger, &name, 0).await;
        assert_eq!(rows, [&standing[..], &good[..]].concat(), "what stood stands, and the rest is written");
    }
    // Each by itself: its row is found by either key.
    for (entry, standing) in contradicting {
        let written = write(ledger, &batch(&name, 0, vec![entry.clone()])).await;
        assert_eq!(written.conflicts, [Conflict { entry, standing: standing.clone() }]);
    }
}

async fn an_alias_stays(ledger: &Arc<dyn Ledger>) {
    // Users are the same in all campaigns, so this one must be nobody's else.
    let raw = fresh_name("mallory");
    let user = user_key(&raw);
    let grant = entry(&raw, LogKind::Grant, 5, ClaimState::Held, Unit::new(1), 1);
    let confirm = entry(&raw, LogKind::Confirm, 6, ClaimState::Confirmed, Unit::new(1), 1);
    let names = [fresh_campaign(), fresh_campaign()];
    for name in &names {
        write(
            ledger,
            &batch(name, 0, vec![grant.clone(), entry("other", LogKind::Grant, 7, ClaimState::Held, Unit::new(2), 1)]),
        )
        .await;
    }
    assert_eq!(ledger.rename(user, "erased-1").await, Ok(2));
    assert_eq!(ledger.rename(user, "erased-1").await, Ok(2));
    assert_eq!(ledger.rename(UserKey([255; 16]), "nobody").await, Ok(0));
    for name in &names {
        // The old grant comes again, then news without a name.
        for entry in [&grant, &confirm, &grant] {
            write(ledger, &batch(name, 0, vec![entry.clone()])).await;
            let rows = all_rows(ledger, name, 0).await;
            let names: Vec<Option<&str>> = rows.iter().map(Entry::user_raw).collect();
            assert_eq!(names, [Some("erased-1"), Some("other")]);
        }
        assert_eq!(all_rows(ledger, name, 0).await[0].kind, LogKind::Confirm);
    }
}

async fn pages_show_each_row_once(ledger: &Arc<dyn Ledger>) {
    let (name, sale) = (fresh_campaign(), Sale::run(13, 2, 500, 80));
    for batch in sale.deliveries(&name, 1, 200..500) {
        write(ledger, &batch).await;
    }
    let expected = sale.expected_rows(1);
    assert!(expected.iter().any(|row| row.unit().turn > 0), "units came back");
    for limit in [1, 7, expected.len(), 5000] {
        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let page = ledger.rows(&name, 1, cursor.as_deref(), limit).await.unwrap();
            assert!(page.rows.len() <= limit);
            seen.extend(page.rows);
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen, expected, "pages of {limit}");
    }
    assert!(ledger.rows(&name, 1, Some("no place"), 10).await.is_err());
}

pub async fn write(ledger: &Arc<dyn Ledger>, batch: &LedgerBatch) -> Written {
    ledger.write(batch).await.unwrap_or_else(|error| panic!("{error}"))
}

/// A batch and a progress that fits it.
pub fn batch(campaign: &CampaignId, shard: u16, entries: Vec<Entry>) -> LedgerBatch {
    let ver = entries.iter().map(|entry| entry.ver).max().unwrap_or(0);
    LedgerBatch {
        campaign: campaign.clone(),
        shard,
        entries,
        progress: Progress { incarnation: 1, ver, behind: 0, at_ms: 1 },
    }
}

pub async fn all_rows(ledger: &Arc<dyn Ledger>, campaign: &CampaignId, shard: u16) -> Vec<Entry> {
    let page = ledger.rows(campaign, shard, None, 100_000).await.unwrap();
    assert_eq!(page.next, None);
    page.rows
}

pub fn fresh_campaign() -> CampaignId {
    CampaignId::new(&fresh_name("sale")).unwrap()
}

pub fn campaign(version: u64) -> LedgerCampaign {
    let at = Timestamp::from_millisecond(1_700_000_000_123).unwrap();
    LedgerCampaign {
        campaign: fresh_campaign(),
        version,
        admission: "packets".to_owned(),
        phase: "ready".to_owned(),
        quota: 40,
        total_cents: Some(123_456),
        hold_s: 120,
        opens_at: at,
        closes_at: None,
        created_at: at,
        fingerprint: "00ff".to_owned(),
        document: "{}".to_owned(),
    }
}

/// News of a claim; grants bring the name.
pub fn entry(user: &str, kind: LogKind, ver: u64, state: ClaimState, unit: Unit, claim_no: u32) -> Entry {
    let wish = wish(user, u64::from(claim_no), "");
    let record = ClaimRecord {
        state,
        unit,
        secret: wish.secret,
        claim_no,
        claimed_ms: 1000,
        deadline_ms: if state == ClaimState::Held { 2000 } else { 0 },
        ver,
        idem: wish.idem,
    };
    let user_raw = (kind == LogKind::Grant).then_some(wish.user_raw);
    Entry {
        incarnation: 1,
        ver,
        kind,
        at_ms: 1000 + ver as i64,
        subject: Subject::Claim { user: wish.user, user_raw, record },
    }
}

fn permutations(items: &[usize]) -> Vec<Vec<usize>> {
    if items.is_empty() {
        return vec![vec![]];
    }
    let mut all = Vec::new();
    for first in items {
        let rest: Vec<usize> = items.iter().copied().filter(|item| item != first).collect();
        all.extend(permutations(&rest).into_iter().map(|rest| [vec![*first], rest].concat()));
    }
    all
}
