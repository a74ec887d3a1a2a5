//! The limit of open files: each connection is one.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises this process's limit to what it may have, and answers that. Machines start programs with room for a thousand,
/// for the sake of old ones that cannot handle more; the hard limit is the one that somebody meant.
pub fn raise() -> io::Result<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    }
    // None is without a limit.
    Ok(maximum.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_had_is_had() {
        let allowed = raise().unwrap();
        assert_eq!(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), allowed);
    }
}
