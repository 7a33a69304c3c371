// The scenario's verbs (tests/clients/lib/scenario.py) in Go, on franz-go.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

var (
	broker    string
	producers = map[string]*producer{}
	mu        sync.Mutex
	assigned  = map[int32]bool{}
	received  []string
)

// A transactional producer that also reads needs a session, which is a client of its own: made at first use.
type producer struct {
	client *kgo.Client
	id     string
}

func base(more ...kgo.Opt) []kgo.Opt {
	opts := []kgo.Opt{kgo.SeedBrokers(broker), kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond })}
	if os.Getenv("TIDEMARK_TEST_CLIENT_LOG") != "" {
		opts = append(opts, kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelDebug, nil)))
	}
	return append(append(opts, security()...), more...)
}

func security() (opts []kgo.Opt) {
	if file := os.Getenv("TIDEMARK_TEST_CA"); file != "" {
		roots, pem := x509.NewCertPool(), must(os.ReadFile(file))
		roots.AppendCertsFromPEM(pem)
		config := &tls.Config{RootCAs: roots}
		if shown := os.Getenv("TIDEMARK_TEST_CERTIFICATE"); shown != "" {
			config.Certificates = []tls.Certificate{must(tls.LoadX509KeyPair(shown, os.Getenv("TIDEMARK_TEST_KEY")))}
		}
		opts = append(opts, kgo.DialTLSConfig(config))
	}
	user, password := os.Getenv("TIDEMARK_TEST_USER"), os.Getenv("TIDEMARK_TEST_PASSWORD")
	switch os.Getenv("TIDEMARK_TEST_MECHANISM") {
	case "PLAIN":
		opts = append(opts, kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
	case "SCRAM-SHA-256":
		opts = append(opts, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		opts = append(opts, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism()))
	case "OAUTHBEARER":
		opts = append(opts, kgo.SASL(oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			token, err := os.ReadFile(os.Getenv("TIDEMARK_TEST_TOKEN_FILE"))
			return oauth.Auth{Token: strings.TrimSpace(string(token))}, err
		})))
	}
	return opts
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	broker = os.Args[1]
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		values, err := perform(strings.Split(lines.Text(), "\t"))
		if err != nil {
			fmt.Printf("err\t%s\t%s\n", kind(err), strings.Join(strings.Fields(err.Error()), " "))
			continue
		}
		fmt.Println(strings.Join(append([]string{"ok"}, values...), "\t"))
	}
}

func kind(err error) string {
	switch {
	case errors.Is(err, kerr.ProducerFenced), errors.Is(err, kerr.InvalidProducerEpoch):
		return "fenced"
	case errors.Is(err, kerr.InvalidProducerIDMapping), errors.Is(err, kerr.OutOfOrderSequenceNumber):
		return "fatal"
	}
	return "other"
}

func perform(w []string) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	switch w[0] {
	case "hello":
		info, _ := debug.ReadBuildInfo()
		for _, module := range info.Deps {
			if module.Path == "github.com/twmb/franz-go" {
				return []string{"franz-go", module.Version}, nil
			}
		}
		return []string{"franz-go", "?"}, nil
	case "connect":
		client, err := kgo.NewClient(base()...)
		if err != nil {
			return nil, err
		}
		defer client.Close()
		short, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		return nil, client.Ping(short)
	case "reconnects":
		return nil, nil
	case "codecs":
		return []string{"none", "gzip", "snappy", "lz4", "zstd"}, nil
	case "producer":
		id := ""
		if len(w) > 3 {
			id = w[3]
		}
		return nil, open(ctx, w[1], w[2], id)
	case "send":
		return nil, producers[w[1]].client.ProduceSync(ctx, record(w[2], w[3], w[4])).FirstErr()
	case "many":
		var records []*kgo.Record
		count, _ := strconv.Atoi(w[5])
		for i := range count {
			records = append(records, record(w[2], w[3], w[4]+strconv.Itoa(i)))
		}
		return nil, producers[w[1]].client.ProduceSync(ctx, records...).FirstErr()
	case "begin":
		return nil, producers[w[1]].client.BeginTransaction()
	case "commit":
		return nil, producers[w[1]].client.EndTransaction(ctx, kgo.TryCommit)
	case "abort":
		return nil, producers[w[1]].client.EndTransaction(ctx, kgo.TryAbort)
	case "close":
		producers[w[1]].client.Close()
		return nil, nil
	case "process":
		count, _ := strconv.Atoi(w[5])
		return nil, process(ctx, producers[w[1]].id, w[2], w[3], w[4], count, kgo.TransactionEndTry(w[6] == "commit"))
	case "committed":
		partition, _ := strconv.Atoi(w[3])
		return committed(ctx, w[1], w[2], int32(partition))
	case "read":
		partition, _ := strconv.Atoi(w[2])
		ms, _ := strconv.Atoi(w[5])
		return read(w[1], int32(partition), w[3], w[4], time.Duration(ms)*time.Millisecond)
	case "join":
		return nil, join(w[1], w[2])
	case "assignment":
		mu.Lock()
		defer mu.Unlock()
		var found []string
		for partition := range assigned {
			found = append(found, strconv.Itoa(int(partition)))
		}
		sort.Strings(found)
		return found, nil
	case "received":
		mu.Lock()
		defer mu.Unlock()
		return append([]string{}, received...), nil
	case "create-topic":
		partitions, _ := strconv.Atoi(w[2])
		return nil, withAdmin(func(admin *kadm.Client) error {
			_, err := admin.CreateTopic(ctx, int32(partitions), 1, nil, w[1])
			return err
		})
	case "describe-config":
		var value string
		err := withAdmin(func(admin *kadm.Client) error {
			configs, err := admin.DescribeTopicConfigs(ctx, w[1])
			if err != nil {
				return err
			}
			topic, err := configs.On(w[1], nil)
			for _, config := range topic.Configs {
				if config.Key == w[2] {
					value = config.MaybeValue()
				}
			}
			return errors.Join(err, topic.Err)
		})
		return []string{value}, err
	}
	return nil, fmt.Errorf("no such verb: %s", w[0])
}

func record(topic, partition, value string) *kgo.Record {
	number, _ := strconv.Atoi(partition)
	return &kgo.Record{Topic: topic, Partition: int32(number), Value: []byte(value)}
}

func open(ctx context.Context, name, how, id string) error {
	opts := base(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	switch how {
	case "plain":
		opts = append(opts, kgo.DisableIdempotentWrite())
	case "idempotent":
	case "transactional":
		opts = append(opts, kgo.TransactionalID(id))
	default:
		codecs := map[string]kgo.CompressionCodec{
			"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
			"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
		}
		opts = append(opts, kgo.ProducerBatchCompression(codecs[how]))
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return err
	}
	producers[name] = &producer{client, id}
	if how == "transactional" { // asks for the producer id now, which fences earlier instances
		_, _, err = client.ProducerID(ctx)
	}
	return err
}

func process(ctx context.Context, id, group, input, output string, count int, end kgo.TransactionEndTry) error {
	session, err := kgo.NewGroupTransactSession(base(
		kgo.TransactionalID(id), kgo.ConsumerGroup(group), kgo.ConsumeTopics(input),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)...)
	if err != nil {
		return err
	}
	defer session.Close()
	var records []*kgo.Record
	for len(records) < count {
		fetches := session.PollRecords(ctx, count-len(records))
		if err := fetches.Err(); err != nil {
			return err
		}
		records = append(records, fetches.Records()...)
	}
	if err := session.Begin(); err != nil {
		return err
	}
	for _, one := range records {
		session.Produce(ctx, &kgo.Record{Topic: output, Value: append(one.Value, '*')}, nil)
	}
	committed, err := session.End(ctx, end)
	if err == nil && committed != bool(end) {
		err = errors.New("the session aborted by itself")
	}
	return err
}

func committed(ctx context.Context, group, topic string, partition int32) (values []string, err error) {
	err = withAdmin(func(admin *kadm.Client) error {
		offsets, err := admin.FetchOffsets(ctx, group)
		if err != nil {
			return err
		}
		at := int64(-1)
		if found, ok := offsets.Lookup(topic, partition); ok {
			at = found.At
		}
		values = []string{strconv.FormatInt(at, 10)}
		return nil
	})
	return values, err
}

func read(topic string, partition int32, level, last string, limit time.Duration) ([]string, error) {
	isolation := kgo.ReadUncommitted()
	if level == "read_committed" {
		isolation = kgo.ReadCommitted()
	}
	client, err := kgo.NewClient(base(kgo.FetchIsolationLevel(isolation), kgo.ConsumePartitions(
		map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}))...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var values []string
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return nil, err
		}
		for _, one := range fetches.Records() {
			values = append(values, string(one.Value))
			if string(one.Value) == last {
				return values, nil
			}
		}
	}
	return values, nil
}

func join(group, topic string) error {
	note := func(there bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			mu.Lock()
			defer mu.Unlock()
			for _, partition := range partitions[topic] {
				if there {
					assigned[partition] = true
				} else {
					delete(assigned, partition)
				}
			}
		}
	}
	client, err := kgo.NewClient(base(
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(500*time.Millisecond), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(note(true)), kgo.OnPartitionsRevoked(note(false)), kgo.OnPartitionsLost(note(false)),
	)...)
	if err != nil {
		return err
	}
	go func() {
		for {
			client.PollFetches(context.Background()).EachRecord(func(one *kgo.Record) {
				mu.Lock()
				defer mu.Unlock()
				received = append(received, string(one.Value))
			})
		}
	}()
	return nil
}

func withAdmin(use func(*kadm.Client) error) error {
	client, err := kgo.NewClient(base()...)
	if err != nil {
		return err
	}
	defer client.Close()
	return use(kadm.NewClient(client))
}
