//! The power goes during the very first start, at each of its steps: the next one succeeds.

use std::future::Future;

use tidemark_testkit::{Batch, Isolation, TestBroker, eventually};

/// Runs a test on a runtime that does not wait, at the end, for starts that lost their disk.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(test);
    runtime.shutdown_background();
}

#[test]
fn a_first_start_may_be_cut_at_every_step() {
    run(async {
        for step in 1.. {
            let stopped = TestBroker::builder().seed(step);
            let disk = stopped.disk().clone();
            disk.cut_power_after(step);
            let mut finished = false;
            tokio::select! {
                started = stopped.clone().try_start() => match started {
                    Ok(broker) => {
                        finished = true;
                        drop(broker);
                    }
                    Err(e) => assert!(disk.is_powered_off(), "step {step}: {e}"),
                },
                () = eventually("the power goes", || disk.is_powered_off()) => {}
            }
            let cluster_ids = cluster_ids(stopped.after_power_cut(step), step).await;
            assert_eq!(cluster_ids[0], cluster_ids[1], "step {step}");
            if finished {
                assert!(step > 10, "a start takes more steps than {step}");
                return;
            }
        }
    });
}

/// What the next two brokers on this disk say, each of which must work.
async fn cluster_ids(stopped: tidemark_testkit::StoppedBroker, step: u64) -> [String; 2] {
    let broker = match stopped.try_start().await {
        Ok(broker) => broker,
        Err(e) => panic!("cut at step {step} of the first start, the next says: {e}"),
    };
    let mut client = broker.client().await;
    let first = client.cluster_id().await;
    client.create_topic("t", 1).await;
    assert_eq!(
        client.produce("t", 0, Batch::of(&["x"]).build()).await,
        Ok(0)
    );
    let broker = broker.crash(step).await.start().await;
    let mut client = broker.client().await;
    let values = client.read_values("t", 0, Isolation::ReadCommitted).await;
    assert_eq!(values, ["x"]);
    [first, client.cluster_id().await]
}
