//! Reading the sketches of counters into one sketch per range of the coarsest layout.

use crate::domain::counter::{Counter, SketchAddress};
use crate::domain::ring::Layout;
use crate::domain::sketch::registers::Sketch;
use crate::domain::sketch::wire;
use crate::local::cells::CounterCells;
use crate::store::counters::Counters;
use crate::store::error::StoreError;

/// Sketches asked for in one go: 512 dense ones are 6 MB.
const SKETCHES_PER_READ: usize = 512;
/// Layouts change when a process with another shard count starts, once or twice in a counter's life.
const ATTEMPTS: usize = 4;

/// One sketch per range of the coarsest layout.
pub struct Ranges {
    ranges: Vec<Range>,
    /// Sketches that could not be decoded.
    pub corrupt: usize,
    /// A sketch holds less than it once acknowledged to this process.
    pub store_is_behind: bool,
}

#[derive(Default)]
struct Range {
    sketch: Option<Sketch>,
    unreachable: bool,
}

impl Ranges {
    fn new(count: usize) -> Self {
        let ranges = (0..count).map(|_| Range::default()).collect();
        Self { ranges, corrupt: 0, store_is_behind: false }
    }

    /// Some range is out of reach.
    pub fn unreachable(&self) -> bool {
        self.ranges.iter().any(|range| range.unreachable)
    }

    /// No range is within reach.
    pub fn all_unreachable(&self) -> bool {
        self.ranges.iter().all(|range| range.unreachable)
    }

    /// The ranges' sketches; empty ones are left out.
    pub fn merged(&self) -> Vec<&Sketch> {
        self.ranges.iter().filter_map(|range| range.sketch.as_ref()).collect()
    }

    /// Estimated users per range, unrounded; None where the range is out of reach.
    pub fn users(&self) -> Result<Vec<Option<f64>>, StoreError> {
        self.ranges
            .iter()
            .map(|range| match (&range.sketch, range.unreachable) {
                (_, true) => Ok(None),
                (None, false) => Ok(Some(0.0)),
                (Some(sketch), false) => sketch
                    .estimate()
                    .map(Some)
                    .map_err(|_| StoreError::Corrupt("a sketch is saturated: somebody chose its elements".into())),
            })
            .collect()
    }
}

/// Reads the union of counters. `frozen`: their layout, where it cannot change and need not be read. `own`: this process's
/// cells of the only counter, which learn from what is read, and the cell clock before the read.
pub async fn read_ranges(
    counters: &dyn Counters,
    wanted: &[Counter],
    frozen: Option<Layout>,
    own: (Option<&CounterCells>, u64),
) -> Result<Ranges, StoreError> {
    if let Some(layout) = frozen {
        return Ok(read_once(counters, wanted, &vec![Some(layout); wanted.len()], own).await);
    }
    let mut layouts = counters.layouts(wanted).await?;
    for _ in 0..ATTEMPTS {
        let ranges = read_once(counters, wanted, &layouts, own).await;
        let after = counters.layouts(wanted).await?;
        if after == layouts {
            return Ok(ranges);
        }
        layouts = after;
    }
    Err(StoreError::Unavailable("the layout keeps changing".into()))
}

async fn read_once(
    counters: &dyn Counters,
    wanted: &[Counter],
    layouts: &[Option<Layout>],
    own: (Option<&CounterCells>, u64),
) -> Ranges {
    // Ranges nest, so the coarsest of all counters' layouts has ranges that no shard of any of them crosses.
    let Some(common) = layouts.iter().flatten().copied().reduce(Layout::union) else { return Ranges::new(0) };
    let mut ranges = Ranges::new(usize::from(common.coarsest.count()));
    let addresses: Vec<SketchAddress> = wanted
        .iter()
        .zip(layouts)
        .filter_map(|(counter, layout)| Some((std::sync::Arc::new(counter.clone()), (*layout)?)))
        .flat_map(|(counter, layout)| {
            layout.finest.positions().map(move |position| SketchAddress { counter: counter.clone(), position })
        })
        .collect();
    for chunk in addresses.chunks(SKETCHES_PER_READ) {
        let blobs = counters.read(chunk).await;
        for (address, blob) in chunk.iter().zip(blobs) {
            let range = common.coarsest.shard_at(address.position);
            match blob {
                Ok(None) => learn(&mut ranges, address, &Sketch::new(), own),
                Ok(Some(blob)) => take(&mut ranges, range, address, &blob, own),
                Err(StoreError::Corrupt(_)) => report_corrupt(&mut ranges, address),
                Err(_) => ranges.ranges[range].unreachable = true,
            }
        }
    }
    ranges
}

fn take(ranges: &mut Ranges, range: usize, address: &SketchAddress, blob: &[u8], own: (Option<&CounterCells>, u64)) {
    match wire::decode(blob) {
        Ok(sketch) => {
            learn(ranges, address, &sketch, own);
            match &mut ranges.ranges[range].sketch {
                Some(merged) => merged.merge(&sketch),
                empty => *empty = Some(sketch),
            }
        }
        Err(error) => {
            tracing::debug!(%error, "a sketch does not decode");
            report_corrupt(ranges, address);
        }
    }
}

/// What was read is what the store has: the filter knows it from now on, or the store has lost something.
fn learn(ranges: &mut Ranges, address: &SketchAddress, stored: &Sketch, (own, now_ms): (Option<&CounterCells>, u64)) {
    let Some(cell) = own.and_then(|cells| cells.made_at(address.position)) else {
        return;
    };
    // What was acknowledged while we read is not in what we read.
    let settled = cell.acked_at_ms() < now_ms;
    if cell.compare(stored) && settled {
        ranges.store_is_behind = true;
    }
}

fn report_corrupt(ranges: &mut Ranges, address: &SketchAddress) {
    ranges.corrupt += 1;
    metrics::counter!("headcount_sketches_corrupt_total").increment(1);
    tracing::error!(
        subject = address.counter.subject.id(),
        period = %address.counter.period,
        position = address.position.get(),
        "a sketch is corrupt and left out of the count; remove its key, or restore it"
    );
}
