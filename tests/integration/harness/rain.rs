//! A campaign of packets: what its users are told, and what its ledger has.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use hyper::Method;
use serde_json::{Value, json};
use sqlx::{AnyConnection, Connection, Row};

use headcount::domain::packets::Split;

use super::eventually;
use super::gateway::{Answer, Api, Gateway};

/// A campaign on some gateways.
pub struct Rain {
    pub id: String,
    public: Vec<Api>,
    admin: Vec<Api>,
}

/// What a user was told at last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    pub user: String,
    pub status: u16,
    /// Number and cents of the packet.
    pub packet: Option<(u64, i64)>,
    pub outcome: String,
}

impl Rain {
    /// Makes a campaign of packets with this beside its admission.
    pub async fn open(id: &str, gateways: &[&Gateway], body: Value) -> Self {
        let rain = Self::of(id, gateways);
        rain.put(body).await.expect(201);
        rain
    }

    /// One that exists, or that is still to be made.
    pub fn of(id: &str, gateways: &[&Gateway]) -> Self {
        Self {
            id: id.to_owned(),
            public: gateways.iter().map(|gateway| gateway.public.clone()).collect(),
            admin: gateways.iter().map(|gateway| gateway.admin.clone()).collect(),
        }
    }

    pub fn path(&self, rest: &str) -> String {
        format!("/v1/campaigns/{}{rest}", self.id)
    }

    pub async fn put(&self, body: Value) -> Answer {
        let mut whole = json!({ "admission": "packets" });
        whole.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        self.admin[0].put(&self.path(""), &whole).await
    }

    pub async fn claim(&self, user: &str) -> Answer {
        self.public[0].post(&self.path("/claims"), &json!({ "user": user })).await
    }

    /// Sends the amounts from packet `first` on to the gateway of this number.
    pub async fn add(&self, through: usize, first: u64, cents: &[i64]) -> Answer {
        self.try_add(through, first, cents).await.unwrap_or_else(|error| panic!("the part from {first} on: {error}"))
    }

    /// The same, to a gateway that may be gone.
    pub async fn try_add(
        &self,
        through: usize,
        first: u64,
        cents: &[i64],
    ) -> Result<Answer, Box<dyn std::error::Error + Send + Sync>> {
        let path = self.path(&format!("/packets?first={first}"));
        let lines: Vec<String> = cents.iter().map(i64::to_string).collect();
        self.admin[through].try_send(Method::POST, &path, &[], Bytes::from(lines.join("\n"))).await
    }

    pub async fn close(&self) -> Answer {
        self.admin[0].post(&self.path("/close"), &json!({})).await
    }

    /// The campaign's record as gateways answer it.
    pub async fn record(&self) -> Value {
        self.admin[self.admin.len() - 1].get(&self.path("")).await.expect(200).json()
    }

    /// Waits until the campaign is where it should be.
    pub async fn comes_to(&self, phase: &str) {
        eventually(&format!("{} to be {phase}", self.id), async || self.record().await["phase"] == phase).await;
    }

    /// How many packets are in.
    pub async fn loaded(&self) -> u64 {
        self.record().await["packets"]["loaded"].as_u64().expect("a list")
    }

    /// The results, in which as many as that are claimed and refunded. (A reading is up to an interval old.)
    pub async fn results(&self, claimed: u64, refunded: u64) -> Value {
        let mut results = Value::Null;
        let what = format!("{} with {claimed} packets claimed and {refunded} refunded", self.id);
        for admin in &self.admin {
            eventually(&what, async || {
                let answer = admin.get(&self.path("/results")).await;
                results = if answer.status == 200 { answer.json() } else { Value::Null };
                (&results["claimed"], &results["refunded"]) == (&json!(claimed), &json!(refunded))
            })
            .await;
        }
        results
    }

    /// The books, once nothing moves; they must agree.
    pub async fn audit(&self) -> Value {
        let mut audit = Value::Null;
        eventually("books of a campaign at rest", async || {
            audit = self.admin[0].get(&self.path("/audit")).await.expect(200).json();
            audit["settled"] == true
        })
        .await;
        assert_eq!(audit["balances"], true, "{audit}");
        audit
    }

    /// Each user asks, and asks again after a 503, so many at one time and over the gateways in turn.
    pub async fn crowd(&self, users: Vec<String>, at_once: usize) -> Vec<Told> {
        let calls = users.into_iter().enumerate().map(|(place, user)| self.ask(place, user)).collect::<Vec<_>>();
        futures_util::stream::iter(calls).buffer_unordered(at_once).collect().await
    }

    async fn ask(&self, place: usize, user: String) -> Told {
        let body = json!({ "user": user });
        for attempt in 0..500 {
            let answer = self.public[(place + attempt) % self.public.len()].post(&self.path("/claims"), &body).await;
            if answer.status == 503 {
                assert!(answer.header("retry-after").is_some(), "{}", answer.text());
                continue;
            }
            return Told::of(user, &answer);
        }
        panic!("{user} hears nothing but 503");
    }

    /// What the draw of this campaign's record gives, by packet.
    pub async fn drawn(&self) -> Vec<i64> {
        let packets = &self.record().await["packets"];
        let number = |field: &str| packets[field].as_i64().unwrap_or_else(|| panic!("{field} in {packets}"));
        let split = Split::new(number("total_cents"), number("count") as u64, number("min_cents"), number("max_cents"));
        let seed = data_encoding::HEXLOWER.decode(packets["seed"].as_str().unwrap().as_bytes()).unwrap();
        split.unwrap().draw(seed.try_into().unwrap())
    }
}

impl Told {
    pub fn of(user: String, answer: &Answer) -> Self {
        let body = answer.json();
        let packet = body["unit"].as_u64().zip(body["cents"].as_i64());
        Self { user, status: answer.status, packet, outcome: body["outcome"].as_str().unwrap_or_default().to_owned() }
    }
}

/// Who holds which packet, by number: what users were told. Panics where a packet is two users', or two are one's.
pub fn holders(told: &[Told]) -> BTreeMap<u64, (i64, String)> {
    let mut holders = BTreeMap::new();
    let mut users = BTreeMap::new();
    for told in told {
        let Some((number, cents)) = told.packet else { continue };
        let other = holders.insert(number, (cents, told.user.clone()));
        assert!(other.is_none(), "packet {number} was told to {} and to {other:?}", told.user);
        let other = users.insert(told.user.clone(), number);
        assert!(other.is_none(), "{} was told of packet {number} and of {other:?}", told.user);
    }
    holders
}

/// The tables of a ledger.
pub struct Books<'a> {
    url: &'a str,
    campaign: &'a str,
}

impl<'a> Books<'a> {
    pub fn of(url: &'a str, rain: &'a Rain) -> Self {
        sqlx::any::install_default_drivers();
        Self { url, campaign: &rain.id }
    }

    /// The rows of a query about this campaign, each of numbers and a text. `$` stands for its name.
    async fn rows(&self, query: &str) -> Vec<sqlx::any::AnyRow> {
        let query = query.replace('$', &format!("'{}'", self.campaign));
        let mut connection = AnyConnection::connect(self.url).await.unwrap_or_else(|error| panic!("{error}"));
        let rows = sqlx::query(sqlx::AssertSqlSafe(query.clone())).fetch_all(&mut connection).await;
        rows.unwrap_or_else(|error| panic!("{query}: {error}"))
    }

    /// One row of two numbers.
    pub async fn two(&self, query: &str) -> (i64, i64) {
        let rows = self.rows(query).await;
        (rows[0].get(0), rows[0].get(1))
    }

    /// How many rows of this state, and what they hold.
    pub async fn of_state(&self, state: &str) -> (u64, i64) {
        let query = "SELECT COUNT(*), CAST(COALESCE(SUM(cents), 0) AS BIGINT) FROM ledger_claims WHERE campaign = $";
        let (count, cents) = self.two(&format!("{query} AND state = '{state}'")).await;
        (count as u64, cents)
    }

    /// Waits until so many rows have this state; the time is counted from the last that came in. What they hold.
    pub async fn come_to(&self, state: &str, count: u64) -> i64 {
        let mut known = self.of_state(state).await;
        while known.0 != count {
            let before = known;
            eventually(&format!("news of {}: {before:?} of {count} are {state}", self.campaign), async || {
                tokio::time::sleep(Duration::from_millis(20)).await;
                known = self.of_state(state).await;
                known != before
            })
            .await;
        }
        known.1
    }

    /// Every packet and its holder.
    pub async fn packets(&self) -> BTreeMap<u64, (i64, Option<String>)> {
        let rows = self.rows("SELECT unit, cents, user_name FROM ledger_packet_holders WHERE campaign = $").await;
        rows.iter().map(|row| (row.get::<i64, _>(0) as u64, (row.get(1), row.get(2)))).collect()
    }

    /// Turn, state and user of each claim of a packet.
    pub async fn turns(&self, packet: u64) -> Vec<(i64, String, Option<String>, i64)> {
        let query = format!(
            "SELECT turn, state, user_name, cents FROM ledger_claims WHERE campaign = $ AND unit = {packet} ORDER BY turn"
        );
        let rows = self.rows(&query).await;
        rows.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3))).collect()
    }

    /// The phase as the ledger has it, and the campaign's sum.
    pub async fn campaign(&self) -> Option<(String, i64)> {
        let rows = self.rows("SELECT phase, total_cents FROM ledger_campaigns WHERE campaign = $").await;
        rows.first().map(|row| (row.get(0), row.get(1)))
    }
}
