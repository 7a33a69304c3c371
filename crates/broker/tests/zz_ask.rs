use tidemark_testkit::requests;
use tidemark_testkit::*;
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore]
async fn ask() {
    let mut c = RawClient::connect("127.0.0.1:19092".parse().unwrap()).await;
    let t = format!("ask{}", std::process::id());
    c.create_topic_with(&t, 1, &[("compression.type", "zstd")])
        .await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    println!("{:?}", c.produce(&t, 0, Batch::of(&["a"]).build()).await);
    let r = requests::fetch(&t, &[(0, 0)], Isolation::ReadCommitted);
    println!("{:?}", c.send(9, &r).await);
}
