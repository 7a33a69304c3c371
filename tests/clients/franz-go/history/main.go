// Takes part in a recorded history (scripts/prove histories) with franz-go: transactional producers, a mover in a consumer
// group, a read_committed reader. The format of what it writes: docs/formats.md, "Histories".
//
//	history BROKER FILE FIRST SEED TOPIC:PARTITIONS,...
//
// FIRST is where its values begin; the topics: the movers' source, its own mover's target, others, at last the bank's. It
// stops when standard input ends.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	group    = "history-movers-franz-go"
	library  = "franz-go"
	patience = 60 * time.Second
)

type event map[string]any

var (
	broker  string
	next    atomic.Uint64
	stopped atomic.Bool
	mu      sync.Mutex
	out     *bufio.Writer
)

// Nanoseconds of the machine's monotonic clock, the same in every process.
func now() uint64 {
	var t syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&t)), 0)
	return uint64(t.Nano())
}

func write(e event) {
	line, _ := json.Marshal(e)
	mu.Lock()
	defer mu.Unlock()
	out.Write(append(line, '\n'))
}

// With the error's name, unless there is none.
func (e event) failed(err error) event {
	if err == nil {
		return e
	}
	var known *kerr.Error
	switch {
	case errors.As(err, &known):
		e["error"] = known.Message
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, kgo.ErrRecordTimeout):
		e["error"] = "TIMED_OUT"
	default:
		e["error"] = "UNKNOWN"
	}
	return e
}

func complain(what string, err error) { fmt.Fprintf(os.Stderr, "franz-go: %s: %v\n", what, err) }

func introduce(client, id string) {
	e := event{"kind": "client", "at": now(), "client": client, "library": library}
	if id != "" {
		e["transactional_id"], e["transaction_timeout_ms"] = id, 60000
	}
	write(e)
}

func base(more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{
		kgo.SeedBrokers(broker),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}, more...)
}

func transactional(id string) []kgo.Opt {
	return base(kgo.TransactionalID(id), kgo.TransactionTimeout(60*time.Second))
}

// InitProducerId, which this client otherwise leaves to the first transaction.
func initialize(client *kgo.Client, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	from := now()
	_, _, err := client.ProducerID(ctx)
	write(event{"kind": "init", "from": from, "to": now(), "client": name}.failed(err))
	return err
}

func begin(name string) uint64 {
	txn := next.Add(1)
	write(event{"kind": "begin", "at": now(), "client": name, "txn": txn})
	return txn
}

type topic struct {
	name       string
	partitions int
}

// Sends a record; failed notes that one could not be sent.
func send(client *kgo.Client, name string, txn uint64, to topic, random *rand.Rand, more event, failed *atomic.Bool) {
	value, partition := next.Add(1), random.Intn(to.partitions)
	e := event{"kind": "send", "at": now(), "client": name, "txn": txn, "topic": to.name, "partition": partition, "value": value}
	for key, what := range more {
		e[key] = what
	}
	write(e)
	payload := strconv.FormatUint(value, 10) + " " + strings.Repeat("y", random.Intn(100))
	record := &kgo.Record{Topic: to.name, Partition: int32(partition), Value: []byte(payload)}
	client.Produce(context.Background(), record, func(r *kgo.Record, err error) {
		sent := event{"kind": "sent", "at": now(), "value": value}.failed(err)
		if err == nil {
			sent["offset"] = r.Offset
		} else {
			failed.Store(true)
		}
		write(sent)
	})
}

func produce(index int, topics []topic, random *rand.Rand) {
	id := fmt.Sprintf("franz-go-%d", index)
	for instance := 1; !stopped.Load(); instance++ {
		name := fmt.Sprintf("%s.%d", id, instance)
		introduce(name, id)
		client, err := kgo.NewClient(transactional(id)...)
		if err != nil {
			complain(name, err)
			return
		}
		if err := initialize(client, name); err != nil {
			complain(name, err)
		} else {
			for transaction(client, name, topics, random) {
				if stopped.Load() {
					client.Close()
					return
				}
			}
		}
		client.Close()
	}
	// What the last instance left open is ended by one more.
	name := id + ".last"
	introduce(name, id)
	if client, err := kgo.NewClient(transactional(id)...); err == nil {
		initialize(client, name)
		client.Close()
	}
}

// False when the client is to be used no more.
func transaction(client *kgo.Client, name string, topics []topic, random *rand.Rand) bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	txn := begin(name)
	if err := client.BeginTransaction(); err != nil {
		complain(name, err)
		return false
	}
	var failed atomic.Bool
	if random.Intn(3) == 0 { // a transfer
		amount, bank := 1+random.Intn(1000), topics[len(topics)-1]
		for _, amount := range []int{amount, -amount} {
			send(client, name, txn, bank, random, event{"amount": amount}, &failed)
		}
	} else {
		for range 1 + random.Intn(6) {
			send(client, name, txn, topics[random.Intn(len(topics)-1)], random, nil, &failed)
		}
	}
	if random.Intn(80) == 0 {
		return false // as if it had died
	}
	err := client.Flush(ctx)
	commit := random.Intn(8) != 0 && err == nil && !failed.Load()
	if !commit && failed.Load() {
		if err := client.AbortBufferedRecords(ctx); err != nil {
			return false
		}
	}
	from := now()
	err = client.EndTransaction(ctx, kgo.TransactionEndTry(commit))
	write(event{"kind": "end", "from": from, "to": now(), "client": name, "txn": txn, "commit": commit}.failed(err))
	if err != nil {
		complain(name, err)
	}
	return err == nil
}

func records(fetched kgo.Fetches) ([]*kgo.Record, []any) {
	list, seen := fetched.Records(), []any{}
	for _, r := range list {
		seen = append(seen, []any{r.Topic, r.Partition, r.Offset, valueOf(r)})
	}
	return list, seen
}

func valueOf(r *kgo.Record) uint64 {
	value, _ := strconv.ParseUint(strings.SplitN(string(r.Value), " ", 2)[0], 10, 64)
	return value
}

func assigned(name string) { write(event{"kind": "assign", "at": now(), "client": name}) }

func move(source, target topic, random *rand.Rand) {
	id := "franz-go-mover"
	write(event{"kind": "move", "group": group, "source": source.name, "target": target.name})
	for instance := 1; !stopped.Load(); instance++ {
		name := fmt.Sprintf("%s.%d", id, instance)
		introduce(name, id)
		session, err := kgo.NewGroupTransactSession(append(transactional(id),
			kgo.ConsumerGroup(group), kgo.ConsumeTopics(source.name), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { assigned(name) }))...)
		if err != nil {
			complain(name, err)
			return
		}
		if err := initialize(session.Client(), name); err != nil {
			complain(name, err)
		} else {
			for moveSome(session, name, target, random) {
				if stopped.Load() {
					session.Close()
					return
				}
			}
		}
		session.Close()
	}
	name := id + ".last"
	introduce(name, id)
	if client, err := kgo.NewClient(transactional(id)...); err == nil {
		initialize(client, name)
		client.Close()
	}
}

func moveSome(session *kgo.GroupTransactSession, name string, target topic, random *rand.Rand) bool {
	waiting, done := context.WithTimeout(context.Background(), 200*time.Millisecond)
	from := now()
	list, seen := records(session.PollRecords(waiting, 40))
	done()
	if len(list) == 0 {
		return true
	}
	write(event{"kind": "poll", "from": from, "to": now(), "client": name, "read_committed": true, "records": seen})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	txn := begin(name)
	if err := session.Begin(); err != nil {
		complain(name, err)
		return false
	}
	var failed atomic.Bool
	ends := map[int32]int64{}
	for _, r := range list {
		ends[r.Partition] = r.Offset + 1
		send(session.Client(), name, txn, target, random, event{"input": valueOf(r)}, &failed)
	}
	session.Client().Flush(ctx)
	commit := random.Intn(12) != 0 && !failed.Load()
	positions := []any{}
	for partition, offset := range ends {
		positions = append(positions, []any{list[0].Topic, partition, offset})
	}
	from = now()
	if commit {
		write(event{"kind": "offsets", "from": from, "to": from, "client": name, "txn": txn, "group": group, "positions": positions})
	}
	committed, err := session.End(ctx, kgo.TransactionEndTry(commit))
	// Without an error and not committed: the session found that it must abort, and did not ask to commit.
	e := event{"kind": "end", "from": from, "to": now(), "client": name, "txn": txn, "commit": commit && (committed || err != nil)}
	write(e.failed(err))
	if err != nil {
		complain(name, err)
		return false
	}
	if !committed {
		assigned(name)
	}
	return true
}

func read(topics []topic) {
	name := "franz-go-reader"
	introduce(name, "")
	places := map[string]map[int32]kgo.Offset{}
	for _, t := range topics {
		places[t.name] = map[int32]kgo.Offset{}
		for partition := range t.partitions {
			places[t.name][int32(partition)] = kgo.NewOffset().At(0)
		}
	}
	client, err := kgo.NewClient(base(kgo.ConsumePartitions(places), kgo.FetchIsolationLevel(kgo.ReadCommitted()))...)
	if err != nil {
		complain(name, err)
		return
	}
	defer client.Close()
	assigned(name)
	for !stopped.Load() {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		from := now()
		_, seen := records(client.PollRecords(ctx, 500))
		cancel()
		if len(seen) > 0 {
			write(event{"kind": "poll", "from": from, "to": now(), "client": name, "read_committed": true, "records": seen})
		}
	}
}

func main() {
	broker = os.Args[1]
	file, err := os.Create(os.Args[2])
	if err != nil {
		complain("the history", err)
		os.Exit(1)
	}
	first, _ := strconv.ParseUint(os.Args[3], 10, 64)
	seed, _ := strconv.ParseInt(os.Args[4], 10, 64)
	next.Store(first)
	out = bufio.NewWriterSize(file, 1<<20)
	write(event{"kind": "history", "version": 1, "seed": seed})
	var topics []topic
	for _, word := range strings.Split(os.Args[5], ",") {
		name, count, _ := strings.Cut(word, ":")
		partitions, _ := strconv.Atoi(count)
		topics = append(topics, topic{name, partitions})
	}
	// Source, own target, then what it writes beside the source; the last is the bank's.
	source, target := topics[0], topics[1]
	written := append([]topic{source}, topics[2:]...)
	var all sync.WaitGroup
	for index := range 2 {
		all.Add(1)
		go func() { defer all.Done(); produce(index, written, rand.New(rand.NewSource(seed+int64(index)))) }()
	}
	all.Add(2)
	go func() { defer all.Done(); move(source, target, rand.New(rand.NewSource(seed+7))) }()
	go func() { defer all.Done(); read(topics) }()
	io.Copy(io.Discard, os.Stdin)
	stopped.Store(true)
	all.Wait()
	if err := out.Flush(); err != nil {
		complain("the history", err)
		os.Exit(1)
	}
}
