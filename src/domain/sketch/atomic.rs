//! Registers that many threads raise at once, in memory that grows with their use.
//!
//! 64 pages of 256 registers, each made when a register in it is first raised. A page costs 256 bytes, the table of
//! pages 1 KB. Registers are scattered evenly, so 20 users touch about 17 pages (5.5 KB with the table) and 300 users
//! touch nearly all (17 KB). Smaller pages would save nothing for crowds and cost a bigger table for everybody.
//!
//! Nobody waits: a register is a byte that `fetch_max` raises, and a page once made stays until the whole is
//! dropped. Two threads that want the same new page may meet in `OnceLock` for as long as 256 bytes take to zero.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use super::hash::Hit;
use super::registers::{REGISTERS, Sketch};

const PAGES: usize = 64;
const PAGE_REGISTERS: usize = 256;
const _: () = assert!(PAGES * PAGE_REGISTERS == REGISTERS);

type Page = [AtomicU8; PAGE_REGISTERS];

/// Atomic registers. `Relaxed` is enough everywhere: each register is a fact by itself ("somebody of this rank was
/// here") that is never taken back, and no other memory is read on the strength of it.
pub struct AtomicRegisters {
    pages: [OnceLock<Box<Page>>; PAGES],
}

impl AtomicRegisters {
    pub fn new() -> Self {
        Self { pages: [const { OnceLock::new() }; PAGES] }
    }

    #[inline]
    pub fn get(&self, index: u16) -> u8 {
        let (page, at) = place(index);
        self.pages[page].get().map_or(0, |page| page[at].load(Ordering::Relaxed))
    }

    /// Raises one register; true for exactly one of the threads that raise it to the same rank at once.
    #[inline]
    pub fn raise(&self, hit: Hit) -> bool {
        // Reading first keeps the cache line shared among cores in a flash crowd, where nearly nobody raises.
        if self.get(hit.index) >= hit.rank {
            return false;
        }
        let (page, at) = place(hit.index);
        self.page(page)[at].fetch_max(hit.rank, Ordering::Relaxed) < hit.rank
    }

    /// Raises every register to that of a sketch. Pages where the sketch has nothing are not made.
    pub fn merge(&self, sketch: &Sketch) {
        let (groups, _) = sketch.ranks().as_chunks::<PAGE_REGISTERS>();
        for (page, ranks) in groups.iter().enumerate() {
            if ranks.iter().all(|rank| *rank == 0) {
                continue;
            }
            for (register, rank) in self.page(page).iter().zip(ranks) {
                if register.load(Ordering::Relaxed) < *rank {
                    register.fetch_max(*rank, Ordering::Relaxed);
                }
            }
        }
    }

    /// A copy. Registers raised meanwhile may be in it or not; everything raised before is.
    pub fn snapshot(&self) -> Sketch {
        let mut ranks = [0; REGISTERS];
        let (groups, _) = ranks.as_chunks_mut::<PAGE_REGISTERS>();
        for (group, page) in groups.iter_mut().zip(&self.pages) {
            if let Some(page) = page.get() {
                for (rank, register) in group.iter_mut().zip(page.iter()) {
                    *rank = register.load(Ordering::Relaxed);
                }
            }
        }
        let mut sketch = Sketch::new();
        sketch.raise_all(&ranks);
        sketch
    }

    /// True if nothing was ever raised.
    pub fn is_empty(&self) -> bool {
        self.pages.iter().all(|page| page.get().is_none())
    }

    /// Memory held, the table of pages included.
    pub fn bytes(&self) -> usize {
        let pages = self.pages.iter().filter(|page| page.get().is_some()).count();
        size_of::<Self>() + pages * size_of::<Page>()
    }

    /// By how many bytes raising this register would grow the memory held, if nobody else does it first.
    pub fn growth_bytes(&self, hit: Hit) -> usize {
        let (page, _) = place(hit.index);
        if hit.rank == 0 || self.pages[page].get().is_some() { 0 } else { size_of::<Page>() }
    }

    fn page(&self, page: usize) -> &Page {
        self.pages[page].get_or_init(|| Box::new([const { AtomicU8::new(0) }; PAGE_REGISTERS]))
    }
}

impl Default for AtomicRegisters {
    fn default() -> Self {
        Self::new()
    }
}

fn place(index: u16) -> (usize, usize) {
    (usize::from(index) / PAGE_REGISTERS, usize::from(index) % PAGE_REGISTERS)
}
