//! The same batch on two connections at once; a transaction over a restart; very many aborted ones.

use tidemark_testkit::{
    Batch, Dialect, Isolation, TestBroker, TxnProducer, produced, requests, version,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t10_the_same_batch_on_two_sockets_at_once_is_one_append() {
    const ROUNDS: i32 = 1_000;
    let broker = TestBroker::start().await;
    let mut clients = [broker.client().await, broker.client().await];
    clients[0].create_topic("t", 1).await;
    let (producer_id, epoch) = clients[0].init_producer_id(None).await.unwrap();
    for n in 0..ROUNDS {
        let batch = Batch::of(&[format!("v{n}")])
            .producer(producer_id, epoch, n)
            .build();
        let request = requests::produce(None, [("t", 0, batch)]);
        // Neither waits for the other; which comes first changes.
        let [first, second] = &mut clients;
        let (one, other) = tokio::join!(
            async { produced(&first.send(version::PRODUCE, &request).await) },
            async { produced(&second.send(version::PRODUCE, &request).await) },
        );
        assert_eq!((&one, &other), (&vec![Ok(i64::from(n))], &one));
    }
    let values = clients[0]
        .read_values("t", 0, Isolation::ReadUncommitted)
        .await;
    let wanted: Vec<String> = (0..ROUNDS).map(|n| format!("v{n}")).collect();
    assert_eq!(values, wanted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t10_where_the_first_fails_exactly_one_of_the_two_is_appended() {
    for seed in 0..10 {
        let broker = TestBroker::builder().seed(seed).start().await;
        let mut setup = broker.client().await;
        setup.create_topic("t", 1).await;
        setup.create_topic("held", 1).await;
        let (producer_id, epoch) = setup.init_producer_id(None).await.unwrap();
        let batch = Batch::of(&["once"]).producer(producer_id, epoch, 0).build();
        let request = requests::produce(None, [("t", 0, batch)]);

        // Both are on their way, and the sync that they wait for fails.
        let held = broker
            .hold_syncs_behind_a_record(&mut setup, "held", 0)
            .await;
        let (mut first, mut second) = (broker.client().await, broker.client().await);
        let one = first.start_request(version::PRODUCE, &request).await;
        let other = second.start_request(version::PRODUCE, &request).await;
        broker.disk().fail_next_sync(5);
        broker.disk().release_syncs();
        broker.broker().failure().await;
        for (which, sent) in [("one", one), ("other", other)] {
            let codes = sent.try_answer().await.map(|answer| produced(&answer));
            let acked = codes.is_some_and(|codes| codes[0].is_ok());
            assert!(!acked, "seed {seed}: {which} was acknowledged");
        }
        drop(held);

        // Sent again, also at the same time: whether the disk had kept the first or not.
        let broker = broker.crash(seed).await.start().await;
        let (mut first, mut second) = (broker.client().await, broker.client().await);
        let (one, other) = tokio::join!(
            async { produced(&first.send(version::PRODUCE, &request).await) },
            async { produced(&second.send(version::PRODUCE, &request).await) },
        );
        assert_eq!((&one, &other), (&vec![Ok(0)], &one), "seed {seed}");
        let values = first.read_values("t", 0, Isolation::ReadUncommitted).await;
        assert_eq!(values, ["once"], "seed {seed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t11_a_transaction_goes_on_after_a_restart_and_commits_whole() {
    for dialect in Dialect::BOTH {
        for crash in [true, false] {
            let mut broker = TestBroker::start().await;
            let mut client = broker.client().await;
            client.create_topic("t", 1).await;
            let mut producer = TxnProducer::init_in(&mut client, "tx", dialect).await;
            if dialect == Dialect::Classic {
                producer.enrol(&mut client, &[("t", 0)]).await.unwrap();
            }
            for n in 0..10 {
                if n == 5 {
                    broker = match crash {
                        true => broker.crash(11).await.start().await,
                        false => broker.restart().await,
                    };
                    client = broker.client().await;
                }
                let value = format!("v{n}");
                producer.send(&mut client, "t", 0, &[value]).await.unwrap();
            }
            let seen = client.read_values("t", 0, Isolation::ReadCommitted).await;
            assert!(seen.is_empty(), "{dialect:?}: open: {seen:?}");
            producer.end(&mut client, true).await.unwrap();
            let seen = client.read_values("t", 0, Isolation::ReadCommitted).await;
            let wanted: Vec<String> = (0..10).map(|n| format!("v{n}")).collect();
            assert_eq!(seen, wanted, "{dialect:?}, crash: {crash}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m12_a_fetch_lists_the_aborted_transactions_of_its_bytes_among_very_many() {
    // A hundred thousand are in the unit test of the index; here it is the whole way.
    const ABORTED: i64 = 2_000;
    let mut broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    let mut producer = TxnProducer::init(&mut client, "tx").await;
    for n in 0..ABORTED {
        producer.enrol(&mut client, &[("t", 0)]).await.unwrap();
        producer
            .send(&mut client, "t", 0, &[format!("a{n}")])
            .await
            .unwrap();
        producer.end(&mut client, false).await.unwrap();
    }
    client
        .produce("t", 0, Batch::of(&["plain"]).build())
        .await
        .unwrap();
    for restarted in [false, true] {
        if restarted {
            broker = broker.restart().await;
            client = broker.client().await;
        }
        for from in [2 * 100, 2 * (ABORTED - 1)] {
            let request = requests::fetch("t", &[(0, from)], Isolation::ReadCommitted);
            // So that an answer holds some of them.
            let request = request.with_max_bytes(1_000);
            let response = client.send(version::FETCH, &request).await;
            let fetched = tidemark_testkit::fetched(&response).remove(0);
            let end = fetched.next_offset().unwrap();
            let listed = fetched.aborted.clone().unwrap();
            let expected = (from..end).filter(|o| o % 2 == 0 && *o < 2 * ABORTED);
            assert_eq!(listed.len(), expected.count(), "from {from}, to {end}");
            let values: Vec<String> = fetched.committed().iter().map(|r| r.text()).collect();
            let plain = if end > 2 * ABORTED {
                vec!["plain"]
            } else {
                vec![]
            };
            assert_eq!(values, plain);
        }
    }
}
