//! Writes: several writers, old versions, deletions, and answers that do not come.

use capi_ipam_controller::client::error_chain;
use capi_ipam_registry::{
    Backend, BlockRecord, Created, Entry, Record, Registry, RegistryError, confirm,
};
use futures::future::join_all;

use crate::support::{
    World, assert_one_line, block_key, block_record, both, create, holder, start,
};

both!(
    record_is_created_read_updated_and_deleted,
    one_of_sixteen_writers_creates_a_record,
    one_of_sixteen_writers_replaces_a_version,
    write_of_an_old_version_is_a_conflict,
    recreated_record_is_another_one,
    record_that_is_gone_is_deleted,
    confirmed_record_has_survived_a_second_write,
    lost_answer_is_read_back,
    record_under_another_name_is_not_written,
);

async fn record_is_created_read_updated_and_deleted<W: World>() {
    let (_world, registry) = start::<W>().await;
    let key = block_key(1);
    assert_eq!(registry.read(&key).await.expect("it answers"), None);
    let created = create(&registry, &key, "west").await;
    let read = registry.read(&key).await.expect("it answers");
    let read = read.expect("it exists");
    assert_eq!((&read.key, &read.value), (&created.key, &created.value));
    assert_eq!(read.value, Ok(block_record(&key, "west")));
    let mut record = BlockRecord {
        used: Some(7),
        contenders: vec!["east".to_owned()],
        ..BlockRecord::default()
    };
    if let Record::Block(before) = block_record(&key, "west") {
        record = BlockRecord {
            used: record.used,
            contenders: record.contenders,
            ..before
        };
    }
    let record = Record::Block(record);
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
        let stored = registry.read(&key).await.expect("it answers");
        let stored = stored.expect("it exists");
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
    let stored = registry.read(&key).await.expect("it answers");
    assert_eq!(holder(&stored.expect("it exists")), holder(winner));
}

async fn write_of_an_old_version_is_a_conflict<W: World>() {
    let (_world, registry) = start::<W>().await;
    let key = block_key(1);
    let old = create(&registry, &key, "west").await;
    let current = registry.update(&old, &block_record(&key, "west")).await;
    let current = current.expect("it is ours");
    let refused = [
        registry
            .update(&old, &block_record(&key, "east"))
            .await
            .map(drop),
        registry.delete(&old).await,
    ];
    for result in refused {
        let error = result.expect_err("it is old");
        assert!(matches!(error, RegistryError::Conflict { .. }), "{error:?}");
        let text = error_chain(&error);
        assert!(text.contains(&key), "{text}");
        assert_one_line(&text);
    }
    let read = registry.read(&key).await.expect("it answers");
    assert_eq!(read.expect("it exists").value, current.value);
}

async fn recreated_record_is_another_one<W: World>() {
    let (_world, registry) = start::<W>().await;
    let key = block_key(1);
    let first = create(&registry, &key, "west").await;
    registry.delete(&first).await.expect("it is ours");
    let second = create(&registry, &key, "west").await;
    assert_eq!(first.value, second.value);
    assert!(first.version.is_older_than(&second.version));
    let refused = [
        registry
            .update(&first, &block_record(&key, "west"))
            .await
            .map(drop),
        registry.delete(&first).await,
    ];
    for result in refused {
        let is_conflict = matches!(result, Err(RegistryError::Conflict { .. }));
        assert!(is_conflict, "{result:?}");
    }
    let read = registry.read(&key).await.expect("it answers");
    assert!(read.is_some(), "the second one exists");
}

async fn record_that_is_gone_is_deleted<W: World>() {
    let (_world, registry) = start::<W>().await;
    let key = block_key(1);
    let held = create(&registry, &key, "west").await;
    for _ in 0..2 {
        registry.delete(&held).await.expect("nothing exists");
    }
    let error = registry.update(&held, &block_record(&key, "west")).await;
    assert!(
        matches!(error, Err(RegistryError::Conflict { .. })),
        "{error:?}"
    );
}

async fn confirmed_record_has_survived_a_second_write<W: World>() {
    let (_world, registry) = start::<W>().await;
    let key = block_key(1);
    let held = create(&registry, &key, "west").await;
    let confirmed = confirm(&registry, &held).await.expect("it is ours");
    assert_eq!(confirmed.value, held.value);
    let is_written = held.version.is_older_than(&confirmed.version);
    assert_eq!(is_written, !registry.settle_time().is_zero());
    if is_written {
        // Another writer has replaced it.
        let lost = confirm(&registry, &held).await;
        assert!(
            matches!(lost, Err(RegistryError::Conflict { .. })),
            "{lost:?}"
        );
    }
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
    let read = registry.read(&key).await.expect("it answers");
    let read = read.expect("it exists");
    assert_eq!((holder(&read), holder(&updated)), ("east", "east"));
    assert!(!updated.version.is_older_than(&read.version));
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
    assert_empty(&registry).await;
}

async fn assert_empty(registry: &Registry) {
    let watched = crate::support::Watched::complete(registry).await;
    assert!(watched.cache.is_empty());
}
