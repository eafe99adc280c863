package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
)

const (
	timeLimit = 60 * time.Second // of a check
	patience  = 20 * time.Second // for messages that have to come
	silence   = 2 * time.Second  // for messages that must not come
	atOnce    = 4
)

// failure says what is not as a check wants it. Checks panic with it, which ends them.
type failure string

// want fails with a message unless a condition holds.
func want(condition bool, format string, values ...any) {
	if !condition {
		panic(failure(fmt.Sprintf(format, values...)))
	}
}

// must fails if there is an error.
func must(err error) {
	want(err == nil, "%T: %v", err, err)
}

// get returns a value, or fails if there is an error.
func get[T any](value T, err error) T {
	must(err)
	return value
}

// same fails unless two things are equal.
func same[T any](got, wanted T, what string) {
	left, right := fmt.Sprintf("%#v", got), fmt.Sprintf("%#v", wanted)
	want(left == right, "%s is %s instead of %s", what, left, right)
}

// say prints a line of JSON.
func say(line any) {
	printing.Lock()
	defer printing.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(line)
}

var printing sync.Mutex

// openClient returns a client that gives up early.
func openClient() *azservicebus.Client {
	return get(azservicebus.NewClientFromConnectionString(os.Getenv("CONNECTION_STRING"), &azservicebus.ClientOptions{
		RetryOptions: azservicebus.RetryOptions{MaxRetries: 1, RetryDelay: 100 * time.Millisecond, MaxRetryDelay: time.Second},
	}))
}

// receiver has the methods that receivers with and without a session share.
type receiver interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	PeekMessages(context.Context, int, *azservicebus.PeekMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	ReceiveDeferredMessages(context.Context, []int64, *azservicebus.ReceiveDeferredMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	CompleteMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.CompleteMessageOptions) error
	AbandonMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.AbandonMessageOptions) error
	DeferMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.DeferMessageOptions) error
	DeadLetterMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.DeadLetterOptions) error
	Close(context.Context) error
}

// bench has the things that a check works with.
type bench struct {
	ctx    context.Context
	client *azservicebus.Client
	entity string // the name of the check's queue or topic
}

func (b *bench) sender() *azservicebus.Sender {
	return get(b.client.NewSender(b.entity, nil))
}

func (b *bench) receiver(options *azservicebus.ReceiverOptions) *azservicebus.Receiver {
	return get(b.client.NewReceiverForQueue(b.entity, options))
}

func (b *bench) subscription(name string, options *azservicebus.ReceiverOptions) *azservicebus.Receiver {
	return get(b.client.NewReceiverForSubscription(b.entity, name, options))
}

func (b *bench) session(id string) *azservicebus.SessionReceiver {
	return get(b.client.AcceptSessionForQueue(b.ctx, b.entity, id, nil))
}

func (b *bench) nextSession() *azservicebus.SessionReceiver {
	return get(b.client.AcceptNextSessionForQueue(b.ctx, b.entity, nil))
}

// send sends messages to the check's entity, each by itself.
func (b *bench) send(messages ...*azservicebus.Message) {
	sender := b.sender()
	for _, message := range messages {
		must(sender.SendMessage(b.ctx, message, nil))
	}
	must(sender.Close(b.ctx))
}

// receive returns so many messages, or fails.
func (b *bench) receive(from receiver, count int) []*azservicebus.ReceivedMessage {
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	var messages []*azservicebus.ReceivedMessage
	for len(messages) < count {
		more, err := from.ReceiveMessages(ctx, count-len(messages), nil)
		want(!errors.Is(err, context.DeadlineExceeded), "%d of %d messages came in %s", len(messages), count, patience)
		must(err)
		messages = append(messages, more...)
	}
	return messages
}

func (b *bench) receiveOne(from receiver) *azservicebus.ReceivedMessage {
	return b.receive(from, 1)[0]
}

// receiveNothing fails if a message comes.
func (b *bench) receiveNothing(from receiver) {
	ctx, cancel := context.WithTimeout(b.ctx, silence)
	defer cancel()
	messages, err := from.ReceiveMessages(ctx, 1, nil)
	want(len(messages) == 0, "%d messages came, and none should have", len(messages))
	want(errors.Is(err, context.DeadlineExceeded), "%v instead of the end of the wait", err)
}

func (b *bench) complete(with receiver, messages ...*azservicebus.ReceivedMessage) {
	for _, message := range messages {
		must(with.CompleteMessage(b.ctx, message, nil))
	}
}

// empty fails if the check's queue has a message, in whatever state.
func (b *bench) empty() {
	messages := get(b.receiver(nil).PeekMessages(b.ctx, 10, nil))
	want(len(messages) == 0, "%d messages are left", len(messages))
}

// failsWith fails unless an error is the SDK's own, with a code.
func failsWith(err error, code azservicebus.Code) {
	want(err != nil, "no error instead of %s", code)
	var own *azservicebus.Error
	want(errors.As(err, &own), "%T instead of %s: %v", err, code, err)
	want(own.Code == code, "%s instead of %s: %v", own.Code, code, err)
}

// failsFor fails unless an error has one of AMQP's conditions: the SDK has no code of its own for them.
func failsFor(err error, conditions ...string) {
	want(err != nil, "no error instead of %v", conditions)
	var link *amqp.LinkError
	var outcome *amqp.Error
	got := ""
	switch {
	case errors.As(err, &link) && link.RemoteErr != nil:
		got = string(link.RemoteErr.Condition)
	case errors.As(err, &outcome):
		got = string(outcome.Condition)
	default:
		for _, condition := range conditions {
			if strings.Contains(err.Error(), condition) {
				return
			}
		}
	}
	want(slices.Contains(conditions, got), "%T %q instead of %v: %v", err, got, conditions, err)
}

type check func(*bench)

type result struct {
	Check   string  `json:"check"`
	OK      bool    `json:"ok"`
	Error   string  `json:"error"`
	Seconds float64 `json:"seconds"`
}

// run runs checks, some at the same time, and prints a line for each; it returns whether all passed.
func run(names []string, prefix string) bool {
	free := make(chan struct{}, atOnce)
	results := make(chan result, len(names))
	for _, name := range names {
		go func() {
			free <- struct{}{}
			defer func() { <-free }()
			began := time.Now()
			text := watch(name, prefix)
			results <- result{name, text == "", text, math.Round(time.Since(began).Seconds()*100) / 100}
		}()
	}
	passed := true
	for range names {
		one := <-results
		say(one)
		passed = passed && one.OK
	}
	return passed
}

// watch runs a check and returns its error; a check that hangs keeps its goroutine.
func watch(name, prefix string) string {
	outcome := make(chan string, 1)
	go func() {
		defer func() {
			switch reason := recover().(type) {
			case nil:
				outcome <- ""
			case failure:
				outcome <- string(reason)
			default:
				outcome <- fmt.Sprintf("panic: %v", reason)
			}
		}()
		ctx, cancel := context.WithTimeout(context.Background(), timeLimit)
		defer cancel()
		client := openClient()
		defer func() {
			go client.Close(context.Background()) //nolint:errcheck // the check is over
		}()
		checks[name](&bench{ctx, client, prefix + name})
	}()
	select {
	case text := <-outcome:
		return text
	case <-time.After(timeLimit):
		return fmt.Sprintf("took longer than %s", timeLimit)
	}
}
