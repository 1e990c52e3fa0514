//! Servers that are away, and wrong credentials.

use std::time::{Duration, Instant};

use capi_ipam_controller::client::error_chain;
use capi_ipam_registry::RegistryError;
use capi_ipam_testing::wait::eventually;

use crate::support::{
    Watched, World, assert_one_line, block_key, block_record, both, create, start,
};

both!(
    unreachable_server_is_reported_and_comes_back,
    wrong_credentials_are_named,
);

async fn unreachable_server_is_reported_and_comes_back<W: World>() {
    let (mut world, registry) = start::<W>().await;
    let key = block_key(1);
    let held = create(&registry, &key, "west").await;
    let watched = Watched::complete(&registry).await;
    world.kill();
    // The client learns of it with the end of its connection.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let (other, record) = (block_key(2), block_record(&block_key(2), "west"));
    let started = Instant::now();
    let errors = [
        registry.read(&key).await.map(drop),
        registry.create(&other, &record).await.map(drop),
        registry
            .update(&held, &block_record(&key, "west"))
            .await
            .map(drop),
        registry.delete(&held).await,
        world.open().await.map(drop),
    ];
    println!("five operations failed within {:?}", started.elapsed());
    assert!(started.elapsed() < Duration::from_mins(1));
    for result in errors {
        let error = result.expect_err("the server is away");
        let text = error_chain(&error);
        assert!(matches!(error, RegistryError::Unreachable { .. }), "{text}");
        assert_one_line(&text);
    }
    watched.until_holders(&["west"]).await;
    let late = Watched::start(&registry);
    eventually("the reason is shown", || async {
        late.failure.lock().as_ref().map(drop)
    })
    .await;
    assert_one_line(late.failure.lock().as_deref().unwrap_or_default());
    world.start_again();
    let started = Instant::now();
    eventually("it answers again", || async {
        let created = registry.create(&other, &record).await;
        created.is_ok().then_some(())
    })
    .await;
    println!("the first write succeeded after {:?}", started.elapsed());
    watched.until_holders(&["west", "west"]).await;
    late.until_holders(&["west", "west"]).await;
}

async fn wrong_credentials_are_named<W: World>() {
    let error = W::open_denied().await;
    let text = error_chain(&error);
    assert!(matches!(error, RegistryError::Forbidden { .. }), "{text}");
    assert_one_line(&text);
}
