// The scenario's verbs (tests/clients/lib/scenario.py) in Go, on sarama.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"os"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

var (
	broker    string
	producers = map[string]sarama.SyncProducer{}
	mu        sync.Mutex
	assigned  = map[int32]bool{}
	received  []string
)

// Sarama speaks the versions that belong to the Kafka release it is told; the newest that it knows.
func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	c.Producer.Return.Successes = true
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Producer.Retry.Max = 50
	c.Producer.Retry.Backoff = 50 * time.Millisecond
	c.Producer.Transaction.Retry.Max = 50
	c.Metadata.Retry.Max = 50
	c.Metadata.Retry.Backoff = 50 * time.Millisecond
	c.Consumer.Retry.Backoff = 50 * time.Millisecond
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Consumer.Group.Session.Timeout = 6 * time.Second
	c.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	c.Consumer.IsolationLevel = sarama.ReadCommitted
	secure(c)
	return c
}

func secure(c *sarama.Config) {
	if file := os.Getenv("TIDEMARK_TEST_CA"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			panic(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		c.Net.TLS.Enable, c.Net.TLS.Config = true, &tls.Config{RootCAs: roots}
		if shown := os.Getenv("TIDEMARK_TEST_CERTIFICATE"); shown != "" {
			pair, err := tls.LoadX509KeyPair(shown, os.Getenv("TIDEMARK_TEST_KEY"))
			if err != nil {
				panic(err)
			}
			c.Net.TLS.Config.Certificates = []tls.Certificate{pair}
		}
	}
	mechanism := os.Getenv("TIDEMARK_TEST_MECHANISM")
	if mechanism == "" {
		return
	}
	c.Net.SASL.Enable, c.Net.SASL.Handshake, c.Net.SASL.Mechanism = true, true, sarama.SASLMechanism(mechanism)
	c.Net.SASL.User, c.Net.SASL.Password = os.Getenv("TIDEMARK_TEST_USER"), os.Getenv("TIDEMARK_TEST_PASSWORD")
	switch mechanism {
	case sarama.SASLTypeOAuth:
		c.Net.SASL.TokenProvider = tokenFile(os.Getenv("TIDEMARK_TEST_TOKEN_FILE"))
	case sarama.SASLTypeSCRAMSHA256:
		c.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: scram.SHA256} }
	case sarama.SASLTypeSCRAMSHA512:
		c.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: scram.SHA512} }
	}
}

type tokenFile string

func (file tokenFile) Token() (*sarama.AccessToken, error) {
	token, err := os.ReadFile(string(file))
	return &sarama.AccessToken{Token: strings.TrimSpace(string(token))}, err
}

// Sarama has no SCRAM of its own: its users bring a library, this one in its examples.
type scramClient struct {
	hash         scram.HashGeneratorFcn
	conversation *scram.ClientConversation
}

func (s *scramClient) Begin(user, password, authzid string) error {
	client, err := s.hash.NewClient(user, password, authzid)
	if err == nil {
		s.conversation = client.NewConversation()
	}
	return err
}

func (s *scramClient) Step(challenge string) (string, error) { return s.conversation.Step(challenge) }
func (s *scramClient) Done() bool                            { return s.conversation.Done() }

func main() {
	broker = os.Args[1]
	if os.Getenv("TIDEMARK_TEST_CLIENT_LOG") != "" {
		sarama.Logger = log.New(os.Stderr, "", log.Lmicroseconds)
		sarama.DebugLogger = sarama.Logger
	}
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
	if errors.Is(err, sarama.ErrProducerFenced) || errors.Is(err, sarama.ErrInvalidProducerEpoch) {
		return "fenced"
	}
	for _, producer := range producers {
		if producer.IsTransactional() && producer.TxnStatus()&sarama.ProducerTxnFlagFatalError != 0 {
			return "fatal"
		}
	}
	return "other"
}

func number(word string) int {
	n, _ := strconv.Atoi(word)
	return n
}

func perform(w []string) ([]string, error) {
	switch w[0] {
	case "hello":
		info, _ := debug.ReadBuildInfo()
		for _, module := range info.Deps {
			if module.Path == "github.com/IBM/sarama" {
				return []string{"sarama", module.Version}, nil
			}
		}
		return []string{"sarama", "?"}, nil
	case "connect":
		c := config()
		c.Metadata.Retry.Max = 0
		client, err := sarama.NewClient([]string{broker}, c)
		if err != nil {
			return nil, err
		}
		return nil, client.Close()
	case "reconnects":
		return nil, nil
	case "codecs":
		return []string{"none", "gzip", "snappy", "lz4", "zstd"}, nil
	case "producer":
		return nil, open(w)
	case "send":
		_, _, err := producers[w[1]].SendMessage(message(w[2], number(w[3]), w[4]))
		return nil, err
	case "many":
		var messages []*sarama.ProducerMessage
		for i := range number(w[5]) {
			messages = append(messages, message(w[2], number(w[3]), w[4]+strconv.Itoa(i)))
		}
		return nil, producers[w[1]].SendMessages(messages)
	case "begin":
		return nil, producers[w[1]].BeginTxn()
	case "commit":
		return nil, producers[w[1]].CommitTxn()
	case "abort":
		return nil, producers[w[1]].AbortTxn()
	case "close":
		return nil, producers[w[1]].Close()
	case "process":
		return nil, process(producers[w[1]], w[2], w[3], w[4], number(w[5]), w[6] == "commit")
	case "committed":
		return committed(w[1], w[2], int32(number(w[3])))
	case "read":
		return read(w[1], int32(number(w[2])), w[3], w[4], time.Duration(number(w[5]))*time.Millisecond)
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
		return nil, withAdmin(func(admin sarama.ClusterAdmin) error {
			return admin.CreateTopic(w[1], &sarama.TopicDetail{NumPartitions: int32(number(w[2])), ReplicationFactor: 1}, false)
		})
	case "describe-config":
		var value string
		err := withAdmin(func(admin sarama.ClusterAdmin) error {
			entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: w[1], ConfigNames: []string{w[2]}})
			for _, entry := range entries {
				if entry.Name == w[2] {
					value = entry.Value
				}
			}
			return err
		})
		return []string{value}, err
	}
	return nil, fmt.Errorf("no such verb: %s", w[0])
}

func message(topic string, partition int, value string) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{Topic: topic, Partition: int32(partition), Value: sarama.StringEncoder(value)}
}

func open(w []string) error {
	c := config()
	codecs := map[string]sarama.CompressionCodec{
		"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
		"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	}
	switch w[2] {
	case "plain":
	case "idempotent", "transactional":
		c.Producer.Idempotent = true
		c.Producer.RequiredAcks = sarama.WaitForAll
		c.Net.MaxOpenRequests = 1
		if w[2] == "transactional" {
			c.Producer.Transaction.ID = w[3]
		}
	default:
		c.Producer.Compression = codecs[w[2]]
	}
	producer, err := sarama.NewSyncProducer([]string{broker}, c)
	if err == nil {
		producers[w[1]] = producer
	}
	return err
}

// A group session is a callback in sarama: the transaction is made inside it.
type processor struct {
	producer      sarama.SyncProducer
	group, output string
	count         int
	commit        bool
	cancel        func()
	result        error
}

func (p *processor) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (p *processor) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (p *processor) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	defer p.cancel()
	var records []*sarama.ConsumerMessage
	for len(records) < p.count {
		select {
		case record := <-claim.Messages():
			records = append(records, record)
		case <-session.Context().Done():
			p.result = errors.New("the session ended")
			return nil
		}
	}
	p.result = func() error {
		if err := p.producer.BeginTxn(); err != nil {
			return err
		}
		metadata := sarama.NewConsumerGroupMetadataFromSession(session, p.group, nil)
		for _, record := range records {
			if _, _, err := p.producer.SendMessage(message(p.output, 0, string(record.Value)+"*")); err != nil {
				return err
			}
			if err := p.producer.AddMessageToTxnWithGroupMetadata(record, metadata, nil); err != nil {
				return err
			}
		}
		if p.commit {
			return p.producer.CommitTxn()
		}
		return p.producer.AbortTxn()
	}()
	return nil
}

func process(producer sarama.SyncProducer, group, input, output string, count int, commit bool) error {
	members, err := sarama.NewConsumerGroup([]string{broker}, group, config())
	if err != nil {
		return err
	}
	defer members.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	p := &processor{producer: producer, group: group, output: output, count: count, commit: commit, cancel: cancel,
		result: errors.New("no session within 30 s")}
	if err := members.Consume(ctx, []string{input}, p); err != nil {
		return err
	}
	return p.result
}

func committed(group, topic string, partition int32) ([]string, error) {
	var found string
	err := withAdmin(func(admin sarama.ClusterAdmin) error {
		answer, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {partition}})
		if err != nil {
			return err
		}
		found = strconv.FormatInt(answer.GetBlock(topic, partition).Offset, 10)
		return nil
	})
	return []string{found}, err
}

func read(topic string, partition int32, level, last string, limit time.Duration) ([]string, error) {
	c := config()
	if level == "read_uncommitted" {
		c.Consumer.IsolationLevel = sarama.ReadUncommitted
	}
	consumer, err := sarama.NewConsumer([]string{broker}, c)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	records, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	defer records.AsyncClose()
	var values []string
	timeout := time.After(limit)
	for {
		select {
		case record := <-records.Messages():
			values = append(values, string(record.Value))
			if values[len(values)-1] == last {
				return values, nil
			}
		case <-timeout:
			return values, nil
		}
	}
}

type member struct{}

func (member) Setup(session sarama.ConsumerGroupSession) error {
	mu.Lock()
	defer mu.Unlock()
	for _, partitions := range session.Claims() {
		for _, partition := range partitions {
			assigned[partition] = true
		}
	}
	return nil
}

func (member) Cleanup(sarama.ConsumerGroupSession) error {
	mu.Lock()
	defer mu.Unlock()
	clear(assigned)
	return nil
}

func (member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for record := range claim.Messages() {
		mu.Lock()
		received = append(received, string(record.Value))
		mu.Unlock()
		session.MarkMessage(record, "")
		session.Commit()
	}
	return nil
}

func join(group, topic string) error {
	members, err := sarama.NewConsumerGroup([]string{broker}, group, config())
	if err != nil {
		return err
	}
	go func() {
		for {
			if err := members.Consume(context.Background(), []string{topic}, member{}); err != nil {
				log.Print(err)
				time.Sleep(100 * time.Millisecond)
			}
		}
	}()
	return nil
}

func withAdmin(use func(sarama.ClusterAdmin) error) error {
	admin, err := sarama.NewClusterAdmin([]string{broker}, config())
	if err != nil {
		return err
	}
	defer admin.Close()
	return use(admin)
}
