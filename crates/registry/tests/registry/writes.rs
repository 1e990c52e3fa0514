//! Writes: several writers, old versions, deletions, and answers that do not come.

use capi_ipam_controller::client::error_chain;
use capi_ipam_registry::{Created, Entry, Record, Registry, RegistryError};
use futures::future::join_all;

use crate::support::{
    Watched, World, assert_one_line, block_key, block_record, both, create, holder, read, start,
    update,
};

both!(
    record_is_created_read_updated_and_deleted,
    one_of_sixteen_writers_creates_a_record,
    one_of_sixteen_writers_replaces_a_version,
    write_of_an_old_version_is_a_conflict,
    lost_answer_is_read_back,
    record_under_another_name_is_not_written,
);

async fn record_is_created_read_updated_and_deleted<W: World>() {
    let (_world, registry) = start::<W>().await;
    let key = block_key(1);
    assert_eq!(registry.read(&key).await.expect("it answers"), None);
    let created = create(&registry, &key, "west").await;
    let found = read(&registry, &key).await;
    assert_eq!((&found.key, &found.value), (&created.key, &created.value));
    assert_eq!(found.value, Ok(block_record(&key, "west")));
    let mut record = block_record(&key, "west");
    if let Record::Block(block) = &mut record {
        block.used = Some(7);
        block.contenders = vec!["east".to_owned()];
    }
    let updated = registry.update(&created, &record).await;
    let updated = updated.expect("it is ours");
    assert_eq!(updated.value, Ok(record));
    assert!(created.version.is_older_than(&updated.version));
    registry.delete(&updated).await.expect("it is ours");
    assert_eq!(registry.read(&key).await.expect("it answers"), None);
}

async fn one_of_sixteen_writers_creates_a_record<W: World>() {
    let (_world, registry) = start::<W>().await;
    for round in 0..5 {
        let key = block_key(round);
        let writers = (0..16).map(|number| {
            let (registry, key) = (registry.clone(), key.clone());
            tokio::spawn(async move {
                let record = block_record(&key, &format!("c{number}"));
                registry.create(&key, &record).await
            })
        });
        let results: Vec<Created> = join_all(writers)
            .await
            .into_iter()
            .map(|result| result.expect("no panic"))
            .map(|result| result.unwrap_or_else(|error| panic!("{}", error_chain(&error))))
            .collect();
        let is_ours = |created: &&Created| matches!(created, Created::Ours(_));
        assert_eq!(results.iter().filter(is_ours).count(), 1, "{results:?}");
        let stored = read(&registry, &key).await;
        for Created::Ours(seen) | Created::Theirs(seen) in &results {
            assert_eq!(holder(seen), holder(&stored));
        }
        // Their names do not stand in the way of the next holder.
        registry.delete(&stored).await.expect("it is unchanged");
        create(&registry, &key, "next").await;
    }
}

async fn one_of_sixteen_writers_replaces_a_version<W: World>() {
    let (_world, registry) = start::<W>().await;
    let key = block_key(1);
    let held = create(&registry, &key, "west").await;
    let writers = (0..16).map(|number| {
        let (registry, held) = (registry.clone(), held.clone());
        tokio::spawn(async move {
            let record = block_record(&held.key, &format!("c{number}"));
            registry.update(&held, &record).await
        })
    });
    let mut winners: Vec<Entry> = Vec::new();
    for result in join_all(writers).await {
        match result.expect("no panic") {
            Ok(entry) => winners.push(entry),
            Err(RegistryError::Conflict { .. }) => {}
            Err(error) => panic!("{}", error_chain(&error)),
        }
    }
    let [winner] = &winners[..] else {
        panic!("{winners:?}")
    };
    assert_eq!(holder(&read(&registry, &key).await), holder(winner));
}

/// Asserts that nothing is written or deleted in the version of an entry.
async fn assert_old(registry: &Registry, old: &Entry) {
    let updated = registry.update(old, &block_record(&old.key, "east")).await;
    for result in [updated.map(drop), registry.delete(old).await] {
        let error = result.expect_err("it is old");
        assert!(matches!(error, RegistryError::Conflict { .. }), "{error:?}");
        let text = error_chain(&error);
        assert!(text.contains(&old.key), "{text}");
        assert_one_line(&text);
    }
}

async fn write_of_an_old_version_is_a_conflict<W: World>() {
    let (_world, registry) = start::<W>().await;
    let old = create(&registry, &block_key(1), "west").await;
    let current = update(&registry, &old, "west").await;
    assert_old(&registry, &old).await;
    assert_eq!(read(&registry, &old.key).await.value, current.value);
    // A record that was deleted and created again is another one.
    registry.delete(&current).await.expect("it is ours");
    let recreated = create(&registry, &old.key, "west").await;
    assert!(current.version.is_older_than(&recreated.version));
    assert_old(&registry, &current).await;
    assert_eq!(read(&registry, &old.key).await.value, current.value);
    // One that is gone is deleted in any version.
    for _ in 0..2 {
        registry.delete(&recreated).await.expect("nothing exists");
    }
    let record = block_record(&old.key, "west");
    let updated = registry.update(&recreated, &record).await;
    let is_conflict = matches!(updated, Err(RegistryError::Conflict { .. }));
    assert!(is_conflict, "{updated:?}");
}

async fn lost_answer_is_read_back<W: World>() {
    let (mut world, registry) = start::<W>().await;
    let key = block_key(1);
    let name = key.clone();
    let created = world
        .without_answers(move |registry| async move {
            registry.create(&name, &block_record(&name, "west")).await
        })
        .await;
    let Ok(Created::Ours(held)) = created else {
        panic!("{created:?}")
    };
    // The record of another one is not taken for it.
    let name = key.clone();
    let theirs = world
        .without_answers(move |registry| async move {
            registry.create(&name, &block_record(&name, "west")).await
        })
        .await;
    assert!(matches!(&theirs, Ok(Created::Theirs(_))), "{theirs:?}");
    let updated = world
        .without_answers(move |registry| async move {
            let record = block_record(&held.key, "east");
            registry.update(&held, &record).await
        })
        .await;
    let updated = updated.expect("it is applied");
    let found = read(&registry, &key).await;
    assert_eq!((holder(&found), holder(&updated)), ("east", "east"));
    assert!(!updated.version.is_older_than(&found.version));
    let deleted = world
        .without_answers(move |registry| async move { registry.delete(&updated).await })
        .await;
    deleted.expect("it is applied");
    assert_eq!(registry.read(&key).await.expect("it answers"), None);
}

async fn record_under_another_name_is_not_written<W: World>() {
    let (_world, registry) = start::<W>().await;
    let refused = [
        (block_key(1), block_record(&block_key(2), "west")),
        (
            "cluster.west".to_owned(),
            block_record(&block_key(1), "west"),
        ),
        ("garbage".to_owned(), block_record(&block_key(1), "west")),
    ];
    for (key, record) in refused {
        let error = registry.create(&key, &record).await;
        let error = error.expect_err("the name is another one");
        assert!(matches!(error, RegistryError::Invalid { .. }), "{error:?}");
        assert_one_line(&error_chain(&error));
    }
    let watched = Watched::complete(&registry).await;
    assert!(watched.cache.entries().is_empty());
}
