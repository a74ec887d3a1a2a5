//! Where a store is: reading `redis://` URLs.

use percent_encoding::percent_decode_str;

/// A host and a port.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Address {
    pub host: String,
    pub port: u16,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// What a URL says.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    pub tls: bool,
    pub user: Option<String>,
    pub password: Option<String>,
    pub address: Address,
}

impl RedisUrl {
    /// Reads `redis[s]://[user[:password]@]host[:port][/0]`. Errors never repeat the URL: it may hold a password.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or("must look like redis://host:port")?;
        let tls = match scheme {
            "redis" | "valkey" => false,
            "rediss" | "valkeys" => true,
            _ => return Err("must begin with redis:// or rediss://".into()),
        };
        let (credentials, place) = rest.rsplit_once('@').map_or((None, rest), |(left, right)| (Some(left), right));
        let (place, database) = place.split_once('/').unwrap_or((place, ""));
        if !matches!(database, "" | "0") {
            return Err("must not name a database but 0, the only one a cluster has".into());
        }
        let (user, password) = match credentials.map(|both| both.split_once(':').unwrap_or((both, ""))) {
            Some((user, password)) => (decoded(user)?, decoded(password)?),
            None => (None, None),
        };
        Ok(Self { tls, user, password, address: address(place)? })
    }
}

fn decoded(text: &str) -> Result<Option<String>, String> {
    let text = percent_decode_str(text).decode_utf8().map_err(|_| "user and password must be UTF-8")?;
    Ok((!text.is_empty()).then(|| text.into_owned()))
}

fn address(place: &str) -> Result<Address, String> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or("has an opening [ without its ]")?;
            (host, rest.strip_prefix(':'))
        }
        None => place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() {
        return Err("must name a host".into());
    }
    let port = port.map_or(Ok(6379), |port| port.parse().map_err(|_| "must have a port from 1 to 65535"))?;
    Ok(Address { host: host.to_string(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Result<(bool, Option<String>, Option<String>, String), String> {
        RedisUrl::parse(text).map(|url| (url.tls, url.user, url.password, url.address.to_string()))
    }

    #[test]
    fn urls_are_read_in_full_or_refused() {
        let some = |text: &str| Some(text.to_string());
        assert_eq!(parts("redis://localhost"), Ok((false, None, None, "localhost:6379".into())));
        assert_eq!(parts("rediss://r.example:7000/0"), Ok((true, None, None, "r.example:7000".into())));
        assert_eq!(parts("redis://:p%40ss@h:1"), Ok((false, None, some("p@ss"), "h:1".into())));
        assert_eq!(parts("redis://app:a:b@[fd00::2]:7"), Ok((false, some("app"), some("a:b"), "[fd00::2]:7".into())));
        for bad in ["localhost:6379", "http://h", "redis://", "redis://h:x", "redis://h/3", "redis://[::1"] {
            assert!(parts(bad).is_err(), "{bad}");
        }
    }
}
