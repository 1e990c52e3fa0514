//! A large registry.

use std::fs;
use std::time::{Duration, Instant};

use capi_ipam_testing::process::Memory;
use futures::{StreamExt, TryStreamExt};

use crate::support::{Watched, World, block_key, block_record, both, start};

/// The number of records.
const RECORDS: u32 = 10_000;

both!(list_of_ten_thousand_records_is_complete);

/// Sets the peak of the memory of this process to its present size. Without the permission the
/// peak is that since its start.
fn reset_peak() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// The processor time that this process has used, in hundredths of a second.
fn processor_time() -> Duration {
    let status = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The numbers follow the name of the program, which is in parentheses.
    let numbers = status.rsplit_once(')').map_or("", |(_, numbers)| numbers);
    let ticks = numbers.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.filter_map(|text| text.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// The time and the memory of the list are printed.
async fn list_of_ten_thousand_records_is_complete<W: World>() {
    let (_world, registry) = start::<W>().await;
    let started = Instant::now();
    let created = futures::stream::iter(0..RECORDS)
        .map(|number| {
            let registry = registry.clone();
            async move {
                let key = block_key(number);
                let record = block_record(&key, &format!("cluster-{}", number % 100));
                registry.create(&key, &record).await
            }
        })
        .buffer_unordered(64)
        .try_for_each(|_| std::future::ready(Ok(())));
    created.await.expect("they are created");
    println!("{RECORDS} records were created in {:?}", started.elapsed());
    reset_peak();
    let before = Memory::of(std::process::id());
    let (started, processor_before) = (Instant::now(), processor_time());
    let watched = Watched::complete(&registry).await;
    let elapsed = started.elapsed();
    let processor = processor_time().saturating_sub(processor_before);
    let after = Memory::of(std::process::id());
    println!(
        "list of {RECORDS} records: {elapsed:?}, {processor:?} of the processor, {:.1} MiB more memory, {:.1} MiB at the peak",
        after.now - before.now,
        after.peak - before.now,
    );
    assert_eq!(watched.cache.blocks("lab").len(), RECORDS as usize);
    assert!(watched.cache.problems().is_empty());
}
