//! Steps: everything that can be done to a pool, and what a pool answers.

use super::claim::{ClaimAnswer, ClaimRecord, UserKey, Wish};
use super::marks::{Floor, OpMark, Parcel, STEP_MAX};
use super::mend::Mend;
use super::terms::{PoolReading, PoolRules, PoolSchedule};
use super::unit::Unit;

/// One atomic change of one pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Makes the pool, without stock. Only for a campaign that was never filled: a pool that is missing later is lost,
    /// and making it anew would sell its units twice (docs/FAULTS.md F20).
    Create {
        rules: PoolRules,
        schedule: PoolSchedule,
    },
    /// Opening hours and pause, unless the pool knows newer ones.
    Reschedule(PoolSchedule),
    /// Brings stock: `unretire` units that this pool retired, then `units`. `cool`: claimable two intervals later,
    /// because somebody may have been told that nothing is left.
    Restock {
        op: OpMark,
        unretire: u32,
        units: Vec<Unit>,
        cool: bool,
    },
    /// Takes up to `count` units that nobody holds out of the pool.
    Retire {
        op: OpMark,
        count: u32,
    },
    /// No more claims; up to `limit` units of the pool and as many cooling ones become refunds.
    Close {
        limit: u32,
    },
    /// After `Close`: closed for good, if nothing is in stock, held or on its way out.
    Finish,
    Claim {
        wishes: Vec<Wish>,
    },
    Look {
        user: UserKey,
    },
    Confirm {
        user: UserKey,
        secret: String,
    },
    Release {
        user: UserKey,
        secret: String,
        by: ReleasedBy,
    },
    /// Expires holds that are overdue, `limit` at most.
    Reap {
        limit: u32,
    },
    /// Sends up to `want` units on their way to the pool of shard `home`.
    Debit {
        home: u16,
        want: u32,
    },
    /// Takes in what `donor` sent, once, and serves these wishes from the stock.
    Credit {
        donor: u16,
        parcel: Parcel,
        wishes: Vec<Wish>,
    },
    /// The parcel arrived: forget it.
    Ack {
        home: u16,
        parcel: Parcel,
    },
    /// The pool's numbers; `entries`: with all that came in.
    Collect {
        entries: bool,
    },
    /// Puts a pool right that has lost something, or holds the others still meanwhile.
    Mend(Mend),
}

impl Step {
    /// Whether it asks for more than a step takes: refused before anything is changed.
    pub fn is_too_large(&self) -> bool {
        let size = match self {
            Step::Claim { wishes } => wishes.len(),
            Step::Restock { unretire, units, .. } => *unretire as usize + units.len(),
            Step::Credit { parcel, wishes, .. } => parcel.units.len().max(wishes.len()),
            Step::Close { limit } | Step::Reap { limit } => *limit as usize,
            Step::Mend(mend) => mend.size(),
            _ => 0,
        };
        size > STEP_MAX
    }

    /// The word in logs and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Step::Create { .. } => "create",
            Step::Reschedule(_) => "reschedule",
            Step::Restock { .. } => "restock",
            Step::Retire { .. } => "retire",
            Step::Close { .. } => "close",
            Step::Finish => "finish",
            Step::Claim { .. } => "claim",
            Step::Look { .. } => "look",
            Step::Confirm { .. } => "confirm",
            Step::Release { .. } => "release",
            Step::Reap { .. } => "reap",
            Step::Debit { .. } => "debit",
            Step::Credit { .. } => "credit",
            Step::Ack { .. } => "ack",
            Step::Collect { .. } => "collect",
            Step::Mend(mend) => mend.name(),
        }
    }
}

/// Whose will ends a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReleasedBy {
    /// Gives a held unit back; not one that is confirmed.
    User,
    /// Takes a held or confirmed unit away; the user may not claim again.
    Operator,
}

/// A pool's answer, and when it gave it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stepped {
    /// The store's clock, in microseconds since 1970.
    pub now_us: i64,
    /// The pool's incarnation and version after the step: what a later `Floor` is made of.
    pub at: Floor,
    pub answer: Answer,
}

impl Stepped {
    pub fn now_ms(&self) -> i64 {
        self.now_us / 1000
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// There is no such pool, though there should be.
    Absent,
    /// The pool has lost something; it serves nobody until it is reconciled.
    Fenced,
    /// The pool's server is another one than before: it hears for a second what callers know, before it serves.
    Admitting,
    /// Another pool of the campaign is put right; this one keeps still until then.
    Frozen,
    /// `Create`, `Reschedule`, `Restock`, `Ack`, `Finish`, `Mend`: false where there was nothing to do, or it may not be
    /// done.
    Done(bool),
    /// `Retire`: units taken by this chunk, now or before.
    Retired(u32),
    /// `Close`: units still in stock.
    Left(u64),
    /// `Claim`: one answer per wish, in their order.
    Claims(Vec<ClaimAnswer>),
    /// `Look`: the user's last claim.
    Record(Option<ClaimRecord>),
    Confirm(ConfirmAnswer),
    Release(ReleaseAnswer),
    /// `Reap`: holds that expired.
    Reaped(u32),
    Debit(DebitAnswer),
    Credit(CreditAnswer, Vec<ClaimAnswer>),
    Reading(Box<PoolReading>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConfirmAnswer {
    /// Now or before.
    Confirmed(ClaimRecord),
    /// The claim ended before.
    Late(ClaimRecord),
    /// No such claim, or another secret.
    Unknown,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReleaseAnswer {
    Released(ClaimRecord),
    /// The claim had ended before.
    Ended(ClaimRecord),
    /// Confirmed claims are not given back by users.
    Confirmed(ClaimRecord),
    /// No such claim, or another secret.
    Unknown,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DebitAnswer {
    /// Sent now.
    New(Parcel),
    /// A parcel to this home is on its way already: see to it first (docs/FAULTS.md A2).
    Open(Parcel),
    /// No stock.
    None,
    /// The pool is closing.
    Closing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreditAnswer {
    Credited,
    /// The pool is closing: the units became refunds.
    Refunded,
    /// Came in before.
    Known,
    /// Another parcel came in under this number: something was lost, and nothing may be acknowledged (docs/FAULTS.md A16).
    Conflict,
}
