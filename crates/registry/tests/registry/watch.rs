//! The source.

use capi_ipam_controller::watch::EventHandler;
use capi_ipam_registry::{Created, Problem, Record};
use capi_ipam_testing::wait::eventually;

use crate::support::{
    Watched, World, block_key, block_record, both, create, holder, read, start, update,
};

both!(
    records_are_listed_and_followed,
    restarted_server_is_followed,
    what_is_no_record_is_a_problem,
);

async fn records_are_listed_and_followed<W: World>() {
    let (_world, registry) = start::<W>().await;
    let empty = Watched::complete(&registry).await;
    assert!(empty.cache.entries().is_empty());
    let first = create(&registry, &block_key(1), "west").await;
    let watched = Watched::complete(&registry).await;
    assert_eq!(watched.cache.blocks("lab").len(), 1);
    let second = create(&registry, &block_key(2), "east").await;
    watched.until_holders(&["west", "east"]).await;
    let changed = update(&registry, &first, "north").await;
    watched.until_holders(&["north", "east"]).await;
    registry.delete(&second).await.expect("it is ours");
    watched.until_holders(&["north"]).await;
    // The answer to an own write can be earlier or later than the watch.
    empty.until_holders(&["north"]).await;
    empty.cache.apply(&first);
    empty.cache.remove(&first);
    empty.cache.apply(&changed);
    empty.until_holders(&["north"]).await;
    let recreated = create(&registry, &block_key(2), "south").await;
    watched.until_holders(&["north", "south"]).await;
    empty.cache.apply(&recreated);
    empty.cache.remove(&second);
    empty.until_holders(&["north", "south"]).await;
}

async fn restarted_server_is_followed<W: World>() {
    let (mut world, registry) = start::<W>().await;
    create(&registry, &block_key(1), "west").await;
    let watched = Watched::complete(&registry).await;
    world.kill();
    watched.until_holders(&["west"]).await;
    world.start_again();
    // Its connection is opened again in the background.
    let (key, other) = (block_key(2), block_key(3));
    eventually("the registry is back", || async {
        let created = registry.create(&key, &block_record(&key, "east")).await;
        created.is_ok().then_some(())
    })
    .await;
    create(&registry, &other, "south").await;
    watched.until_holders(&["west", "east", "south"]).await;
}

async fn what_is_no_record_is_a_problem<W: World>() {
    let (world, registry) = start::<W>().await;
    let early = Watched::complete(&registry).await;
    create(&registry, &block_key(1), "west").await;
    let bad = W::bad_records();
    for (key, text) in &bad {
        world.write_bad(key, text).await;
    }
    let late = Watched::complete(&registry).await;
    for watched in [&early, &late] {
        eventually("all problems are shown", || async {
            (watched.cache.problems().len() == bad.len()).then_some(())
        })
        .await;
    }
    for problem in late.cache.problems() {
        println!("{}: {}", problem.key, problem.problem().expect("it is one"));
    }
    for (key, _) in &bad {
        let read = read(&registry, key).await;
        assert!(read.problem().is_some(), "{read:?}");
        if *key == block_key(100) {
            // It has a holder, and an administrator or its holder can replace or delete it.
            let record = block_record(key, "west");
            let taken = registry.create(key, &record).await.expect("it answers");
            let Created::Theirs(held) = taken else {
                panic!("{taken:?}")
            };
            let is_undecodable = matches!(held.problem(), Some(Problem::Undecodable(_)));
            assert!(is_undecodable, "{held:?}");
            let replaced = update(&registry, &held, "west").await;
            assert_eq!(holder(&replaced), "west");
        } else {
            registry.delete(&read).await.expect("it may");
        }
    }
    for watched in [&early, &late] {
        watched.until_holders(&["west", "west"]).await;
    }
    eventually("no problem is left", || async {
        early.cache.problems().is_empty().then_some(())
    })
    .await;
    let record = early.cache.blocks("lab").remove(0).1;
    assert!(matches!(record.record(), Some(Record::Block(_))));
}
