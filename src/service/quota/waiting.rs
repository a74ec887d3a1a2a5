//! Users whose shard has run dry, until stock is brought to them.

use std::sync::{Mutex, PoisonError};

use tokio::sync::oneshot;

use crate::domain::quota::claim::{ClaimAnswer, UserKey, Wish};
use crate::domain::quota::marks::STEP_MAX;
use crate::service::error::ServiceError;

/// What a user who waited hears.
#[derive(Clone, Debug)]
pub enum Brought {
    Answer(ClaimAnswer),
    SoldOut { may_return: bool },
    Failed(ServiceError),
}

/// The users who wait for stock at one shard.
#[derive(Default)]
pub struct Waiting(Mutex<Room>);

#[derive(Default)]
pub struct Room {
    pub users: Vec<Waiter>,
    /// A task is looking for stock for them.
    pub served: bool,
}

pub struct Waiter {
    pub wish: Wish,
    pub reply: oneshot::Sender<Brought>,
}

impl Waiting {
    pub fn lock(&self) -> std::sync::MutexGuard<'_, Room> {
        // Nothing under this lock panics but a failed allocation.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The users who still wait, in their order; those who went away are forgotten.
    pub fn wishes(&self) -> Vec<Wish> {
        let mut room = self.lock();
        room.users.retain(|waiter| !waiter.reply.is_closed());
        room.users.iter().take(STEP_MAX).map(|waiter| waiter.wish.clone()).collect()
    }

    /// Tells users what became of their wishes. Who got `Dry` goes on waiting, unless it is known that nothing is left.
    pub fn tell(&self, wishes: &[Wish], answers: Vec<ClaimAnswer>, sold_out: Option<bool>) {
        let mut room = self.lock();
        for (wish, answer) in wishes.iter().zip(answers) {
            let brought = match (answer, sold_out) {
                (ClaimAnswer::Dry, None) => continue,
                (ClaimAnswer::Dry, Some(may_return)) => Brought::SoldOut { may_return },
                (answer, _) => Brought::Answer(answer),
            };
            if let Some(place) = room.users.iter().position(|waiter| waiter.wish.secret == wish.secret) {
                // Whoever went away finds the claim by asking again.
                drop(room.users.remove(place).reply.send(brought));
            }
        }
    }

    /// Tells users who surely have no claim that nothing is left.
    pub fn tell_strangers(&self, may_return: bool, may_have_claimed: impl Fn(UserKey) -> bool) {
        let (known, strangers) =
            std::mem::take(&mut self.lock().users).into_iter().partition(|waiter| may_have_claimed(waiter.wish.user));
        let strangers: Vec<Waiter> = strangers;
        self.lock().users.extend::<Vec<Waiter>>(known);
        strangers.into_iter().for_each(|waiter| drop(waiter.reply.send(Brought::SoldOut { may_return })));
    }

    pub fn tell_all(&self, brought: &Brought) {
        let users = std::mem::take(&mut self.lock().users);
        users.into_iter().for_each(|waiter| drop(waiter.reply.send(brought.clone())));
    }
}
