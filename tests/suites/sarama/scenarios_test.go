// What sarama's functional tests try with idempotent and transactional producers, for one broker.
//
// Sarama's own tests want a cluster of five behind proxies, in containers. These are written for one broker, whose address
// is in SARAMA_BROKER, and which is killed and started again through the socket in SARAMA_CONTROL. Each runs with the
// versions of requests of three releases of Kafka, because sarama decides by release.
package scenarios

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

const patience = 40 * time.Second

var releases = []sarama.KafkaVersion{sarama.V0_11_0_2, sarama.V2_5_0_0, sarama.MaxVersion}

// A scene is one test on one release, with a topic of its own.
type scene struct {
	*testing.T
	release sarama.KafkaVersion
	topic   string
	id      string
}

func on(t *testing.T, releases []sarama.KafkaVersion, play func(s *scene)) {
	for _, release := range releases {
		t.Run(release.String(), func(t *testing.T) {
			name := strings.NewReplacer("/", "-", ".", "-").Replace(t.Name()) + "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
			s := &scene{T: t, release: release, topic: name, id: "tx-" + name}
			s.must(s.admin().CreateTopic(s.topic, &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1}, false))
			play(s)
		})
	}
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *scene) fails(err error, what string) {
	s.Helper()
	if err == nil {
		s.Fatalf("%s did not fail", what)
	}
}

// fenced says that an error tells a producer that another one has taken its place. Kafka has two codes for it.
func (s *scene) fenced(err error, what string) {
	s.Helper()
	if !errors.Is(err, sarama.ErrProducerFenced) && !errors.Is(err, sarama.ErrInvalidProducerEpoch) {
		s.Fatalf("%s was not fenced: %v", what, err)
	}
}

func brokers() []string { return []string{os.Getenv("SARAMA_BROKER")} }

func (s *scene) config(transactionalID string) *sarama.Config {
	c := sarama.NewConfig()
	c.Version = s.release
	c.ClientID = "sarama-scenarios"
	c.Net.MaxOpenRequests = 1
	c.Producer.Idempotent = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Return.Successes = true
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Producer.Retry.Max = 200
	c.Producer.Retry.Backoff = 50 * time.Millisecond
	c.Producer.Transaction.ID = transactionalID
	c.Producer.Transaction.Retry.Max = 200
	c.Producer.Transaction.Retry.Backoff = 50 * time.Millisecond
	c.Metadata.Retry.Max = 200
	c.Metadata.Retry.Backoff = 50 * time.Millisecond
	c.Consumer.Retry.Backoff = 50 * time.Millisecond
	c.Consumer.IsolationLevel = sarama.ReadCommitted
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	return c
}

func (s *scene) producer(transactionalID string) sarama.SyncProducer {
	s.Helper()
	producer, err := sarama.NewSyncProducer(brokers(), s.config(transactionalID))
	s.must(err)
	s.Cleanup(func() { _ = producer.Close() })
	return producer
}

func (s *scene) client() sarama.Client {
	client, err := sarama.NewClient(brokers(), s.config(""))
	s.must(err)
	s.Cleanup(func() { _ = client.Close() })
	return client
}

func (s *scene) admin() sarama.ClusterAdmin {
	c := s.config("")
	c.Version = sarama.MaxVersion
	admin, err := sarama.NewClusterAdmin(brokers(), c)
	s.must(err)
	s.Cleanup(func() { _ = admin.Close() })
	return admin
}

func (s *scene) message(partition int32, value string) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{Topic: s.topic, Partition: partition, Value: sarama.StringEncoder(value)}
}

func (s *scene) send(producer sarama.SyncProducer, partition int32, values ...string) {
	s.Helper()
	for _, value := range values {
		_, _, err := producer.SendMessage(s.message(partition, value))
		s.must(err)
	}
}

// end writes a last record outside of transactions: whoever has read it has read everything before it.
func (s *scene) end(partition int32) {
	s.Helper()
	s.send(s.producer(""), partition, "end")
}

// read returns the values of a partition up to "end", or what there is after `limit`, and whether the end came.
func (s *scene) read(partition int32, level sarama.IsolationLevel, limit time.Duration) ([]string, bool) {
	s.Helper()
	c := s.config("")
	c.Consumer.IsolationLevel = level
	consumer, err := sarama.NewConsumer(brokers(), c)
	s.must(err)
	defer consumer.Close()
	records, err := consumer.ConsumePartition(s.topic, partition, sarama.OffsetOldest)
	s.must(err)
	defer records.AsyncClose()
	values := []string{}
	over := time.After(limit)
	for {
		select {
		case record := <-records.Messages():
			if string(record.Value) == "end" {
				return values, true
			}
			values = append(values, string(record.Value))
		case <-over:
			return values, false
		}
	}
}

func (s *scene) committed(partition int32, wanted ...string) {
	s.Helper()
	s.end(partition)
	s.sees(partition, sarama.ReadCommitted, wanted...)
}

// sees reads a partition that has its end: the end comes, and before it what is wanted.
func (s *scene) sees(partition int32, level sarama.IsolationLevel, wanted ...string) {
	s.Helper()
	found, ended := s.read(partition, level, patience)
	if !ended {
		s.Fatalf("partition %d: a %s reader does not come to the end within %s; it sees %q", partition, named[level], patience, found)
	}
	if !slices.Equal(found, wanted) {
		s.Fatalf("partition %d: a %s reader sees %q, not %q", partition, named[level], found, wanted)
	}
}

var named = map[sarama.IsolationLevel]string{sarama.ReadCommitted: "read_committed", sarama.ReadUncommitted: "read_uncommitted"}

// open reads a partition that a transaction holds back: there is what is wanted, and no end.
func (s *scene) open(partition int32, wanted ...string) {
	s.Helper()
	found, ended := s.read(partition, sarama.ReadCommitted, 300*time.Millisecond)
	if ended || !slices.Equal(found, wanted) {
		s.Fatalf("partition %d: %q was read while a transaction was open, not %q; its end was read: %t", partition, found, wanted, ended)
	}
}

// control asks for something to be done to the broker: kill, start, or restart (one after the other).
func (s *scene) control(word string) {
	s.Helper()
	connection, err := net.DialTimeout("tcp", os.Getenv("SARAMA_CONTROL"), patience)
	s.must(err)
	defer connection.Close()
	fmt.Fprintln(connection, word)
	answer, err := bufio.NewReader(connection).ReadString('\n')
	if strings.TrimSpace(answer) != "ok" {
		s.Fatalf("%s: the broker: %q %v", word, answer, err)
	}
}

func TestProduceWithoutBegin(t *testing.T) {
	on(t, releases, func(s *scene) {
		_, _, err := s.producer(s.id).SendMessage(s.message(0, "nowhere"))
		s.fails(err, "sending outside of a transaction")
		s.committed(0)
	})
}

func TestEmptyTransactions(t *testing.T) {
	on(t, releases, func(s *scene) {
		producer := s.producer(s.id)
		for range 3 {
			s.must(producer.BeginTxn())
			s.must(producer.AbortTxn())
			s.must(producer.BeginTxn())
			s.must(producer.CommitTxn())
		}
		s.must(producer.BeginTxn())
		s.send(producer, 0, "a")
		s.must(producer.CommitTxn())
		s.committed(0, "a")
	})
}

func TestCommit(t *testing.T) {
	on(t, releases, func(s *scene) {
		producer := s.producer(s.id)
		s.must(producer.BeginTxn())
		s.send(producer, 0, "a", "b")
		s.send(producer, 1, "c")
		s.open(0)
		s.must(producer.CommitTxn())
		s.committed(0, "a", "b")
		s.committed(1, "c")
	})
}

func TestAbort(t *testing.T) {
	on(t, releases, func(s *scene) {
		producer := s.producer(s.id)
		s.must(producer.BeginTxn())
		s.send(producer, 0, "no", "no")
		s.must(producer.AbortTxn())
		s.must(producer.BeginTxn())
		s.send(producer, 0, "yes")
		s.must(producer.CommitTxn())
		s.committed(0, "yes")
		s.sees(0, sarama.ReadUncommitted, "no", "no", "yes")
	})
}

// Many transactions in one session: with the newest requests each has an epoch of its own.
func TestManyTransactions(t *testing.T) {
	on(t, releases, func(s *scene) {
		producer := s.producer(s.id)
		wanted := []string{}
		for n := range 30 {
			value := strconv.Itoa(n)
			s.must(producer.BeginTxn())
			s.send(producer, 0, value)
			if n%3 == 2 {
				s.must(producer.AbortTxn())
				continue
			}
			s.must(producer.CommitTxn())
			wanted = append(wanted, value)
		}
		s.committed(0, wanted...)
	})
}

func TestTwoProducers(t *testing.T) {
	on(t, releases, func(s *scene) {
		first, second := s.producer(s.id), s.producer(s.id+"-second")
		s.must(first.BeginTxn())
		s.must(second.BeginTxn())
		s.send(first, 0, "first 1")
		s.send(second, 0, "second 1")
		s.send(first, 0, "first 2")
		s.send(second, 0, "second 2")
		s.must(first.CommitTxn())
		// The second one's transaction begins at offset 1.
		s.open(0, "first 1")
		s.must(second.AbortTxn())
		s.committed(0, "first 1", "first 2")
	})
}

// A second producer of the same id fences the first and ends its transaction.
func TestFencing(t *testing.T) {
	on(t, releases, func(s *scene) {
		zombie := s.producer(s.id)
		s.must(zombie.BeginTxn())
		s.send(zombie, 0, "zombie")
		heir := s.producer(s.id)
		s.must(heir.BeginTxn())
		s.send(heir, 0, "heir")
		_, _, err := zombie.SendMessage(s.message(0, "zombie again"))
		s.fenced(err, "the zombie's record")
		s.fenced(zombie.CommitTxn(), "the zombie's commit")
		s.must(heir.CommitTxn())
		s.committed(0, "heir")
	})
}

// InitProducerId with a producer id and epoch raises the epoch; with those of an earlier session it is refused (KIP-360).
func TestInitProducerID(t *testing.T) {
	on(t, []sarama.KafkaVersion{sarama.V2_5_0_0, sarama.MaxVersion}, func(s *scene) {
		coordinator, err := s.client().TransactionCoordinator(s.id)
		s.must(err)
		ask := func(producerID int64, epoch int16) *sarama.InitProducerIDResponse {
			answer, err := coordinator.InitProducerID(&sarama.InitProducerIDRequest{Version: 3, TransactionalID: &s.id,
				TransactionTimeout: time.Minute, ProducerID: producerID, ProducerEpoch: epoch})
			s.must(err)
			return answer
		}
		first := ask(-1, -1)
		if first.Err != sarama.ErrNoError || first.ProducerEpoch != 0 {
			s.Fatalf("a new id: %+v", first)
		}
		bumped := ask(first.ProducerID, first.ProducerEpoch)
		if bumped.Err != sarama.ErrNoError || bumped.ProducerID != first.ProducerID || bumped.ProducerEpoch != 1 {
			s.Fatalf("after %+v: %+v", first, bumped)
		}
		next := ask(-1, -1)
		if next.Err != sarama.ErrNoError || next.ProducerID != first.ProducerID || next.ProducerEpoch != 2 {
			s.Fatalf("after %+v: %+v", bumped, next)
		}
		if old := ask(first.ProducerID, first.ProducerEpoch); old.Err != sarama.ErrInvalidProducerEpoch { // up to v3
			s.Fatalf("an epoch of long ago: %+v", old)
		}
	})
}

// The offsets of a group in a transaction: committed with it, dropped with it.
func TestOffsets(t *testing.T) {
	on(t, releases, func(s *scene) {
		group := "g-" + s.topic
		s.send(s.producer(""), 1, "in 0", "in 1", "in 2", "in 3")
		producer := s.producer(s.id)
		copyTo := func(next int64) {
			s.send(producer, 0, fmt.Sprintf("out %d", next-1))
			s.must(producer.AddMessageToTxn(&sarama.ConsumerMessage{Topic: s.topic, Partition: 1, Offset: next - 1}, group, nil))
		}
		at := func() int64 {
			s.Helper()
			found, err := s.admin().ListConsumerGroupOffsets(group, map[string][]int32{s.topic: {1}})
			s.must(err)
			return found.GetBlock(s.topic, 1).Offset
		}
		s.must(producer.BeginTxn())
		copyTo(1)
		copyTo(2)
		s.must(producer.CommitTxn())
		if at() != 2 {
			s.Fatalf("committed 2, found %d", at())
		}
		s.must(producer.BeginTxn())
		copyTo(3)
		s.must(producer.AbortTxn())
		if at() != 2 {
			s.Fatalf("the offset of an aborted transaction counts: %d", at())
		}
		s.must(producer.BeginTxn())
		copyTo(4)
		s.must(producer.CommitTxn())
		if at() != 4 {
			s.Fatalf("committed 4, found %d", at())
		}
		s.committed(0, "out 0", "out 1", "out 3")
	})
}

// relay is a consumer group's handler that copies partition 1 to partition 0, a transaction per record.
type relay struct {
	*scene
	producer sarama.SyncProducer
	group    string
	left     int
	cancel   func()
	err      error
}

func (r *relay) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (r *relay) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (r *relay) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	if claim.Partition() != 1 {
		<-session.Context().Done()
		return nil
	}
	defer r.cancel()
	for ; r.left > 0; r.left-- {
		select {
		case record := <-claim.Messages():
			if r.err = r.copy(session, record); r.err != nil {
				return nil
			}
		case <-session.Context().Done():
			r.err = errors.New("the session ended")
			return nil
		}
	}
	return nil
}

func (r *relay) copy(session sarama.ConsumerGroupSession, record *sarama.ConsumerMessage) error {
	if err := r.producer.BeginTxn(); err != nil {
		return err
	}
	if _, _, err := r.producer.SendMessage(r.message(0, string(record.Value)+"*")); err != nil {
		return err
	}
	metadata := sarama.NewConsumerGroupMetadataFromSession(session, r.group, nil)
	if err := r.producer.AddMessageToTxnWithGroupMetadata(record, metadata, nil); err != nil {
		return err
	}
	return r.producer.CommitTxn()
}

// Consume, transform, produce: a second member goes on where the first one left.
func TestGroup(t *testing.T) {
	on(t, []sarama.KafkaVersion{sarama.V2_5_0_0, sarama.MaxVersion}, func(s *scene) {
		group := "g-" + s.topic
		s.send(s.producer(""), 1, "0", "1", "2", "3", "4", "5")
		for life := range 2 {
			members, err := sarama.NewConsumerGroup(brokers(), group, s.config(""))
			s.must(err)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			r := &relay{scene: s, producer: s.producer(fmt.Sprintf("%s-%d", s.id, life)), group: group, left: 3, cancel: cancel}
			s.must(members.Consume(ctx, []string{s.topic}, r))
			s.must(r.err)
			if r.left != 0 {
				s.Fatalf("life %d: %d records did not come within %s", life, r.left, patience)
			}
			s.must(members.Close())
			cancel()
		}
		s.committed(0, "0*", "1*", "2*", "3*", "4*", "5*")
	})
}

// The broker is killed between the begin and the first record, between records, and before the commit.
func TestCommitAcrossKills(t *testing.T) {
	on(t, releases, func(s *scene) {
		producer := s.producer(s.id)
		s.must(producer.BeginTxn())
		s.control("restart")
		s.send(producer, 0, "a")
		s.control("restart")
		s.send(producer, 0, "b")
		s.send(producer, 1, "c")
		s.control("restart")
		s.must(producer.CommitTxn())
		s.must(producer.BeginTxn())
		s.send(producer, 0, "no")
		s.control("restart")
		s.must(producer.AbortTxn())
		s.committed(0, "a", "b")
		s.committed(1, "c")
	})
}

// An idempotent producer gives up while the broker is away, and goes on when it is back.
func TestIdempotentAcrossAnOutage(t *testing.T) {
	on(t, releases, func(s *scene) {
		c := s.config("")
		c.Producer.Retry.Max, c.Metadata.Retry.Max = 2, 2
		producer, err := sarama.NewSyncProducer(brokers(), c)
		s.must(err)
		defer producer.Close()
		for n := range 10 {
			s.send(producer, 0, strconv.Itoa(n))
		}
		s.control("kill")
		for range 3 {
			_, _, err := producer.SendMessage(s.message(0, "lost"))
			s.fails(err, "a record without a broker")
		}
		s.control("start")
		deadline := time.Now().Add(patience)
		for {
			if _, _, err = producer.SendMessage(s.message(0, "back")); err == nil || time.Now().After(deadline) {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		s.must(err)
		s.committed(0, "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "back")
	})
}

func TestAdminOfTransactions(t *testing.T) {
	on(t, []sarama.KafkaVersion{sarama.MaxVersion}, func(s *scene) {
		admin := s.admin().(sarama.TransactionClusterAdmin)
		producer := s.producer(s.id)
		s.must(producer.BeginTxn())
		s.send(producer, 0, "a")

		listed, err := admin.ListTransactions([]string{"Ongoing"}, nil, -1)
		s.must(err)
		at := slices.IndexFunc(listed, func(l sarama.ListTransactionsResponseTransactionState) bool { return l.TransactionalID == s.id })
		if at < 0 {
			s.Fatalf("%s is not among the ongoing: %+v", s.id, listed)
		}
		described, err := admin.DescribeTransactions([]string{s.id})
		s.must(err)
		state := described[s.id]
		if state.TransactionState != "Ongoing" || state.ProducerID != listed[at].ProducerID || len(state.Topics) != 1 ||
			state.Topics[0].Topic != s.topic || !slices.Equal(state.Topics[0].Partitions, []int32{0}) {
			s.Fatalf("described: %+v", state)
		}
		producers, err := admin.DescribeProducers(map[string][]int32{s.topic: {0, 1}})
		s.must(err)
		active := producers[s.topic][0].ActiveProducers
		if len(active) != 1 || active[0].ProducerID != state.ProducerID || active[0].CurrentTxnStartOffset != 0 ||
			active[0].LastSequence != 0 || len(producers[s.topic][1].ActiveProducers) != 0 {
			s.Fatalf("producers: %+v", producers)
		}
		s.must(producer.CommitTxn())
		producers, err = admin.DescribeProducers(map[string][]int32{s.topic: {0}})
		s.must(err)
		if active = producers[s.topic][0].ActiveProducers; len(active) != 1 || active[0].CurrentTxnStartOffset != -1 {
			s.Fatalf("after the commit: %+v", active)
		}
		s.committed(0, "a")
	})
}
