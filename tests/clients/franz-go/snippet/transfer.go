package main

import (
	"context"
	"fmt"
	"log"
	"sort"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const broker = "127.0.0.1:9092"

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	producer, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.TransactionalID("shop-1"), kgo.AllowAutoTopicCreation())
	check(err)
	defer producer.Close()

	check(producer.BeginTransaction())
	check(producer.ProduceSync(ctx, // from here on no earlier instance of shop-1 can write or commit
		&kgo.Record{Topic: "orders", Value: []byte("one coffee")},
		&kgo.Record{Topic: "payments", Value: []byte("3 euros")}).FirstErr())
	check(producer.EndTransaction(ctx, kgo.TryCommit)) // both records, in both topics

	check(producer.BeginTransaction())
	check(producer.ProduceSync(ctx, // the broker has it ...
		&kgo.Record{Topic: "orders", Value: []byte("a mistake")}).FirstErr())
	check(producer.EndTransaction(ctx, kgo.TryAbort)) // ... and no read_committed reader will ever see it

	consumer, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.ConsumerGroup("books"),
		kgo.ConsumeTopics("orders", "payments"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	check(err)
	defer consumer.Close()

	var seen []string
	for len(seen) < 2 {
		fetches := consumer.PollFetches(ctx)
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) { seen = append(seen, string(record.Value)) })
	}
	sort.Strings(seen)
	fmt.Printf("[%s]\n", strings.Join(seen, ", "))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
