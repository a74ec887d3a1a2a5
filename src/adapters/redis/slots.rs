//! Who owns which of the 16,384 slots, and how that is made out of what several nodes say.
//!
//! Each node has its own picture (CLUSTER NODES). One poll round asks all known nodes and merges the answers:
//!
//! 1. Pictures of nodes that fewer than half of the asked know are left out: an address may have been taken over by
//!    a node of another cluster.
//! 2. For each slot the claim with the highest config epoch wins; epochs are unique, and a promoted replica always has
//!    a higher one than the primary it replaced. They are compared **within one round only**, so that a cluster that
//!    was set up anew, whose epochs start at 1, is not refused for ever.
//! 3. A replica counts for WAIT unless most pictures flag it `fail`. Never by link state, which falls to "no replica"
//!    just when a lost link makes WAIT matter.

use std::collections::HashMap;

use super::address::Address;
use super::tags::SLOTS;

/// Nobody owns the slot.
const NOBODY: u16 = u16::MAX;

/// A member of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Cluster id; empty for a server outside of a cluster.
    pub id: String,
    pub address: Address,
    /// Its other host names, as a redirect may use them.
    pub aliases: Vec<String>,
    pub primary: bool,
    /// Replicas that count for WAIT.
    pub replicas: u32,
}

/// Slots and members at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SlotMap {
    pub members: Vec<Member>,
    /// Index into `members` for each slot; empty while nothing is known.
    owners: Vec<u16>,
}

impl SlotMap {
    /// One server that owns everything.
    pub fn single(address: Address, replicas: u32) -> Self {
        let member = Member { id: String::new(), address, aliases: Vec::new(), primary: true, replicas };
        Self { members: vec![member], owners: vec![0; usize::from(SLOTS)] }
    }

    /// Index of the member that owns a slot.
    pub fn owner(&self, slot: u16) -> Option<usize> {
        self.owners.get(usize::from(slot)).copied().filter(|&owner| owner != NOBODY).map(usize::from)
    }

    /// Index of the member at an address, by any of its names.
    pub fn member_at(&self, host: &str, port: u16) -> Option<usize> {
        self.members.iter().position(|member| {
            member.address.port == port
                && (member.address.host == host || member.aliases.iter().any(|name| name == host))
        })
    }

    pub fn give(&mut self, slot: u16, member: usize) {
        if let Some(owner) = self.owners.get_mut(usize::from(slot)) {
            // There are far fewer members than u16 counts.
            *owner = member as u16;
        }
    }

    /// Slots of each member, in the order of `members`.
    pub fn slots_of_members(&self) -> Vec<usize> {
        let mut counts = vec![0; self.members.len()];
        for &owner in self.owners.iter().filter(|&&owner| owner != NOBODY) {
            counts[usize::from(owner)] += 1;
        }
        counts
    }

    pub fn is_complete(&self) -> bool {
        !self.owners.is_empty() && self.owners.iter().all(|&owner| owner != NOBODY)
    }

    /// True if some slot has another owner than before, or has one again; the first map is no move.
    pub fn moved_since(&self, before: &SlotMap) -> bool {
        let id = |map: &SlotMap, slot| map.owner(slot).map(|owner| map.members[owner].id.clone());
        !before.owners.is_empty() && (0..SLOTS).any(|slot| id(before, slot) != id(self, slot))
    }
}

/// A node's own picture of its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    myself: String,
    nodes: Vec<Seen>,
}

/// One line of CLUSTER NODES.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    id: String,
    ip: String,
    host_name: String,
    port: u16,
    flags: Vec<String>,
    primary_id: String,
    epoch: u64,
    slots: Vec<(u16, u16)>,
}

impl Picture {
    /// Reads CLUSTER NODES. `asked` is the host it was asked at: a node that does not know its own address leaves it
    /// empty. None: not such a text.
    pub fn parse(text: &str, asked: &str) -> Option<Self> {
        let nodes: Vec<Seen> =
            text.lines().filter(|line| !line.is_empty()).map(|line| Seen::parse(line, asked)).collect::<Option<_>>()?;
        let myself = nodes.iter().find(|node| node.has("myself"))?.id.clone();
        Some(Self { myself, nodes })
    }

    fn knows(&self, id: &str) -> bool {
        self.nodes.iter().any(|node| node.id == id)
    }
}

impl Seen {
    /// `<id> <ip:port@bus[,host name]> <flags> <primary> <ping> <pong> <epoch> <link> [slot|first-last|[moving]] …`
    fn parse(line: &str, asked: &str) -> Option<Self> {
        let mut fields = line.split(' ');
        let id = fields.next()?.to_string();
        let mut names = fields.next()?.split(',');
        let (place, _bus) = names.next()?.split_once('@')?;
        let (ip, port) = place.rsplit_once(':')?;
        // Further fields are `key=value`.
        let host_name = names.next().filter(|name| !name.contains('=') && *name != "?").unwrap_or_default();
        let flags = fields.next()?.split(',').map(str::to_string).collect();
        let primary_id = fields.next()?.to_string();
        let epoch = fields.nth(2)?.parse().ok()?;
        let _link = fields.next()?;
        Some(Self {
            id,
            ip: if ip.is_empty() { asked } else { ip }.to_string(),
            host_name: host_name.to_string(),
            port: port.parse().ok()?,
            flags,
            primary_id,
            epoch,
            slots: fields
                .filter(|field| !field.starts_with('[') && !field.is_empty())
                .map(slot_range)
                .collect::<Option<_>>()?,
        })
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|own| own == flag)
    }

    /// Worth talking to: it has an address, and is a finished member.
    fn is_reachable(&self) -> bool {
        self.port != 0 && !self.ip.is_empty() && !self.has("noaddr") && !self.has("handshake")
    }

    fn member(&self, by_name: bool) -> Member {
        let named = by_name && !self.host_name.is_empty();
        let (host, alias) = if named { (&self.host_name, &self.ip) } else { (&self.ip, &self.host_name) };
        Member {
            id: self.id.clone(),
            address: Address { host: host.clone(), port: self.port },
            aliases: Some(alias).filter(|alias| !alias.is_empty()).cloned().into_iter().collect(),
            primary: self.has("master"),
            replicas: 0,
        }
    }
}

fn slot_range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range: (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
    (range.0 <= range.1 && range.1 < SLOTS).then_some(range)
}

/// Merges one round's pictures. `by_name`: members are to be reached by their announced host names where they have one
/// (certificates carry names).
pub fn merge(pictures: &[Picture], by_name: bool) -> SlotMap {
    let trusted = trusted(pictures);
    // The newest line of each node: one with the highest epoch, and its own where epochs are equal.
    let mut newest: HashMap<&str, (&Seen, bool)> = HashMap::new();
    for picture in &trusted {
        for node in picture.nodes.iter().filter(|node| node.is_reachable()) {
            let (rank, own) = (node.epoch, node.id == picture.myself);
            let place = newest.entry(&node.id).or_insert((node, own));
            if (rank, own) > (place.0.epoch, place.1) {
                *place = (node, own);
            }
        }
    }
    let mut nodes: Vec<&Seen> = newest.into_values().map(|(node, _)| node).collect();
    nodes.sort_by(|a, b| a.id.cmp(&b.id));

    let mut map = SlotMap {
        members: nodes.iter().map(|node| node.member(by_name)).collect(),
        owners: vec![NOBODY; usize::from(SLOTS)],
    };
    let index: HashMap<&str, usize> = nodes.iter().enumerate().map(|(index, node)| (node.id.as_str(), index)).collect();
    let mut epochs = vec![0; usize::from(SLOTS)];
    for node in trusted.iter().flat_map(|picture| &picture.nodes) {
        let Some(&member) = index.get(node.id.as_str()) else { continue };
        for slot in node.slots.iter().flat_map(|&(first, last)| first..=last) {
            let epoch = &mut epochs[usize::from(slot)];
            if map.owner(slot).is_none() || node.epoch > *epoch {
                *epoch = node.epoch;
                map.give(slot, member);
            }
        }
    }
    count_replicas(&mut map, &nodes, &index, &trusted);
    map
}

fn trusted(pictures: &[Picture]) -> Vec<&Picture> {
    let known_by = |id: &str| pictures.iter().filter(|picture| picture.knows(id)).count();
    let trusted: Vec<_> = pictures.iter().filter(|picture| 2 * known_by(&picture.myself) > pictures.len()).collect();
    if trusted.is_empty() { pictures.iter().take(1).collect() } else { trusted }
}

fn count_replicas(map: &mut SlotMap, nodes: &[&Seen], index: &HashMap<&str, usize>, pictures: &[&Picture]) {
    for node in nodes.iter().filter(|node| node.has("slave") && !node.has("nofailover")) {
        let failed = |picture: &&&Picture| picture.nodes.iter().any(|seen| seen.id == node.id && seen.has("fail"));
        if 2 * pictures.iter().filter(failed).count() <= pictures.len()
            && let Some(&primary) = index.get(node.primary_id.as_str())
        {
            map.members[primary].replicas += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(letter: char) -> String {
        letter.to_string().repeat(40)
    }

    /// `a` and `b` are primaries, `c` a replica of `a`; `myself` is added to the line of `who`.
    fn text(who: char, lines: &[(char, &str, &str, &str)]) -> String {
        lines
            .iter()
            .map(|(letter, place, flags, rest)| {
                let myself = if *letter == who { "myself," } else { "" };
                format!("{} {place} {myself}{flags} {rest}\n", id(*letter))
            })
            .collect()
    }

    fn healthy() -> Vec<(char, &'static str, &'static str, &'static str)> {
        vec![
            ('a', "10.0.0.1:7000@17000", "master", "- 0 1 1 connected 0-8191 [8191->-bbbb]"),
            ('b', "10.0.0.2:7000@17000,redis-b.local,shard-id=9", "master", "- 0 1 2 connected 8192-16382 16383"),
            ('c', "10.0.0.3:7000@17000", "slave", &*Box::leak(format!("{} 0 1 1 connected", id('a')).into_boxed_str())),
        ]
    }

    fn picture(who: char, lines: &[(char, &str, &str, &str)]) -> Picture {
        Picture::parse(&text(who, lines), "asked.host").unwrap()
    }

    fn owner(map: &SlotMap, slot: u16) -> String {
        map.members[map.owner(slot).unwrap()].id[..1].to_string()
    }

    #[test]
    fn a_healthy_cluster_is_read_in_full() {
        let map = merge(&[picture('a', &healthy()), picture('b', &healthy())], false);
        assert!(map.is_complete());
        assert_eq!((owner(&map, 0), owner(&map, 8191), owner(&map, 16383)), ("a".into(), "a".into(), "b".into()));
        assert_eq!(map.slots_of_members(), [8192, 8192, 0]);
        assert_eq!(map.members.iter().map(|member| member.replicas).collect::<Vec<_>>(), [1, 0, 0]);
        assert_eq!(map.member_at("redis-b.local", 7000), map.member_at("10.0.0.2", 7000));
        assert_eq!(map.members[1].address.host, "10.0.0.2");
        assert_eq!(merge(&[picture('a', &healthy())], true).members[1].address.host, "redis-b.local");
    }

    #[test]
    fn the_promoted_replica_wins_over_the_primary_that_does_not_know_it_yet() {
        let mut after = healthy();
        after[0] = ('a', "10.0.0.1:7000@17000", "master,fail", "- 0 1 1 disconnected");
        after[2] = ('c', "10.0.0.3:7000@17000", "master", "- 0 1 3 connected 0-8191");
        let map = merge(&[picture('a', &healthy()), picture('b', &after), picture('c', &after)], false);
        assert_eq!(owner(&map, 5), "c");
        assert!(map.moved_since(&merge(&[picture('a', &healthy())], false)));
        assert!(!map.moved_since(&map));
        assert!(!map.moved_since(&SlotMap::default()), "the first map is no move");
    }

    #[test]
    fn epochs_of_an_earlier_round_do_not_count() {
        // A cluster set up anew, with lower epochs: whatever the last round said, this one says it alone.
        let anew = vec![('d', "10.0.0.9:7000@17000", "master", "- 0 0 0 connected 0-16383")];
        assert_eq!(owner(&merge(&[picture('d', &anew)], false), 0), "d");
    }

    #[test]
    fn a_node_of_another_cluster_is_not_believed() {
        let other = vec![('x', "10.0.0.1:7000@17000", "master", "- 0 1 99 connected 0-16383")];
        let map = merge(&[picture('x', &other), picture('b', &healthy()), picture('c', &healthy())], false);
        assert_eq!(owner(&map, 0), "a");
        assert!(map.members.iter().all(|member| member.id != id('x')));
    }

    #[test]
    fn failed_and_unpromotable_replicas_do_not_count_and_suspected_ones_do() {
        for (flags, expected) in [("slave", 1), ("slave,fail?", 1), ("slave,fail", 0), ("slave,nofailover", 0)] {
            let mut lines = healthy();
            lines[2].2 = flags;
            let map = merge(&[picture('a', &lines), picture('b', &lines)], false);
            assert_eq!(map.members[0].replicas, expected, "{flags}");
        }
    }

    #[test]
    fn a_node_that_does_not_know_its_address_has_the_one_it_was_asked_at() {
        let alone = vec![('a', ":7000@17000", "master", "- 0 0 0 connected 0-100")];
        let map = merge(&[picture('a', &alone)], false);
        assert_eq!(map.members[0].address.to_string(), "asked.host:7000");
        assert!(!map.is_complete() && map.owner(101).is_none());
    }

    #[test]
    fn other_texts_are_refused() {
        for bad in
            ["", "ERR", "a b c", &text('a', &[('a', "10.0.0.1:7000@17000", "master", "- 0 1 1 connected 0-99999")])]
        {
            assert!(Picture::parse(bad, "h").is_none(), "{bad:?}");
        }
    }
}
