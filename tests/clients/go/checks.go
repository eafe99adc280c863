package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

var checks = map[string]check{
	"send-one":             sendOne,
	"send-list":            sendList,
	"send-batch":           sendBatch,
	"send-1mb":             send1MB,
	"send-too-large":       sendTooLarge,
	"send-scheduled":       sendScheduled,
	"receive-complete":     receiveComplete,
	"receive-empty":        receiveEmpty,
	"receive-and-delete":   receiveAndDelete,
	"abandon":              abandon,
	"abandon-properties":   abandonProperties,
	"abandon-delay":        abandonDelay,
	"defer-properties":     deferProperties,
	"max-delivery-count":   maxDeliveryCount,
	"defer":                deferMessage,
	"dead-letter":          deadLetter,
	"peek":                 peek,
	"schedule":             schedule,
	"schedule-cancel":      scheduleCancel,
	"renew-lock":           renewLock,
	"lock-lost":            lockLost,
	"unknown-queue":        unknownQueue,
	"unknown-subscription": unknownSubscription,
	"session-state":        sessionState,
	"session-next":         sessionNext,
	"session-none":         sessionNone,
	"session-two":          sessionTwo,
	"session-held":         sessionHeld,
	"session-defer":        sessionDefer,
	"session-peek":         sessionPeek,
	"session-renew-lock":   sessionRenewLock,
	"session-lock-lost":    sessionLockLost,
	"session-required":     sessionRequired,
	"session-unsupported":  sessionUnsupported,
	"session-missing":      sessionMissing,
	"session-list":         sessionList,
	"topic-all":            topicAll,
	"topic-rules":          topicRules,
	"topic-dead-letter":    topicDeadLetter,
	"topic-session":        topicSession,
}

var (
	receiveAndDeleteMode = &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete}
	deadLetters          = &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter}
)

func message(body string) *azservicebus.Message {
	return &azservicebus.Message{Body: []byte(body)}
}

func keyed(body string) *azservicebus.Message {
	return &azservicebus.Message{Body: []byte(body), PartitionKey: pointer("key")}
}

func ofSession(session, body string) *azservicebus.Message {
	return &azservicebus.Message{Body: []byte(body), SessionID: &session}
}

func pointer[T any](value T) *T {
	return &value
}

// bodies returns the bodies of messages in their order.
func bodies(messages []*azservicebus.ReceivedMessage) []string {
	texts := []string{}
	for _, message := range messages {
		texts = append(texts, string(message.Body))
	}
	return texts
}

// sorted returns the bodies of messages, sorted.
func sorted(messages []*azservicebus.ReceivedMessage) []string {
	texts := bodies(messages)
	slices.Sort(texts)
	return texts
}

func numbers(count int) []string {
	texts := []string{}
	for number := range count {
		texts = append(texts, fmt.Sprintf("%02d", number))
	}
	return texts
}

func text(value *string) string {
	if value == nil {
		return "(none)"
	}
	return *value
}

func sendOne(b *bench) {
	b.send(&azservicebus.Message{
		Body: []byte("one"), MessageID: pointer("id-1"), ApplicationProperties: map[string]any{"colour": "red"},
	})
	receiver := b.receiver(nil)
	got := b.receiveOne(receiver)
	same(string(got.Body), "one", "body")
	same(got.MessageID, "id-1", "message id")
	same(got.DeliveryCount, 1, "delivery count")
	want(got.SequenceNumber != nil, "no sequence number")
	want(got.EnqueuedTime != nil, "no enqueued time")
	want(got.LockedUntil != nil, "no end of the lock")
	want(got.LockToken != [16]byte{}, "no lock token")
	same(got.ApplicationProperties, map[string]any{"colour": "red"}, "application properties")
	b.complete(receiver, got)
}

// The SDK sends no lists: it sends one message after the other.
func sendList(b *bench) {
	sender := b.sender()
	for _, body := range numbers(10) {
		must(sender.SendMessage(b.ctx, message(body), nil))
	}
	receiver := b.receiver(nil)
	messages := b.receive(receiver, 10)
	same(sorted(messages), numbers(10), "bodies")
	b.complete(receiver, messages...)
}

func sendBatch(b *bench) {
	sender := b.sender()
	batch := get(sender.NewMessageBatch(b.ctx, nil))
	for _, body := range numbers(50) {
		must(batch.AddMessage(keyed(body), nil))
	}
	must(sender.SendMessageBatch(b.ctx, batch, nil))
	receiver := b.receiver(nil)
	messages := b.receive(receiver, 50)
	same(sorted(messages), numbers(50), "bodies")
	b.complete(receiver, messages...)
}

func send1MB(b *bench) {
	body := bytes.Repeat([]byte("0123456789"), 100_000)
	b.send(&azservicebus.Message{Body: body})
	receiver := b.receiver(nil)
	got := b.receiveOne(receiver)
	want(bytes.Equal(got.Body, body), "the body is another")
	b.complete(receiver, got)
}

func sendTooLarge(b *bench) {
	sender := b.sender()
	large := &azservicebus.Message{Body: make([]byte, 1_100_000)}
	err := sender.SendMessage(b.ctx, large, nil)
	want(errors.Is(err, azservicebus.ErrMessageTooLarge), "%v instead of ErrMessageTooLarge", err)
	batch := get(sender.NewMessageBatch(b.ctx, nil))
	err = batch.AddMessage(large, nil)
	want(errors.Is(err, azservicebus.ErrMessageTooLarge), "%v instead of ErrMessageTooLarge", err)
	must(sender.SendMessage(b.ctx, message("small"), nil))
	receiver := b.receiver(nil)
	got := b.receiveOne(receiver)
	same(string(got.Body), "small", "body")
	b.complete(receiver, got)
}

func sendScheduled(b *bench) {
	due := time.Now().Add(4 * time.Second)
	b.send(&azservicebus.Message{Body: []byte("later"), ScheduledEnqueueTime: &due})
	receiver := b.receiver(nil)
	got := b.receiveOne(receiver)
	same(string(got.Body), "later", "body")
	want(time.Now().After(due.Add(-time.Second/2)), "the message came too early")
	b.complete(receiver, got)
}

func receiveComplete(b *bench) {
	b.send(message("1"), message("2"), message("3"))
	receiver := b.receiver(nil)
	messages := b.receive(receiver, 3)
	same(sorted(messages), []string{"1", "2", "3"}, "bodies")
	b.complete(receiver, messages...)
	b.receiveNothing(receiver)
	b.empty()
}

func receiveEmpty(b *bench) {
	receiver := b.receiver(nil)
	b.receiveNothing(receiver)
	b.send(message("one"))
	b.complete(receiver, b.receiveOne(receiver))
}

func receiveAndDelete(b *bench) {
	b.send(message("1"), message("2"))
	same(sorted(b.receive(b.receiver(receiveAndDeleteMode), 2)), []string{"1", "2"}, "bodies")
	b.empty()
}

func abandon(b *bench) {
	b.send(message("one"))
	receiver := b.receiver(nil)
	got := b.receiveOne(receiver)
	same(got.DeliveryCount, 1, "first delivery count")
	must(receiver.AbandonMessage(b.ctx, got, nil))
	got = b.receiveOne(receiver)
	same(got.DeliveryCount, 2, "second delivery count")
	b.complete(receiver, got)
}

func abandonProperties(b *bench) {
	b.send(&azservicebus.Message{
		Body: []byte("one"), ApplicationProperties: map[string]any{"colour": "red", "size": int64(5)},
	})
	receiver := b.receiver(nil)
	must(receiver.AbandonMessage(b.ctx, b.receiveOne(receiver), &azservicebus.AbandonMessageOptions{
		PropertiesToModify: map[string]any{"colour": "blue", "more": "text"},
	}))
	got := b.receiveOne(receiver)
	wanted := map[string]any{"colour": "blue", "more": "text", "size": int64(5)}
	same(got.ApplicationProperties, wanted, "application properties")
	b.complete(receiver, got)
}

func abandonDelay(b *bench) {
	b.send(message("one"))
	receiver := b.receiver(nil)
	got := b.receiveOne(receiver)
	begun := time.Now()
	must(receiver.AbandonMessage(b.ctx, got, &azservicebus.AbandonMessageOptions{
		PropertiesToModify: map[string]any{"x-opt-kafkabus-delay": int64(1500), "colour": "blue"},
	}))
	got = b.receiveOne(receiver)
	want(time.Since(begun) >= 1500*time.Millisecond, "the message came too early")
	same(got.DeliveryCount, 2, "delivery count")
	same(got.ApplicationProperties, map[string]any{"colour": "blue"}, "application properties")
	b.complete(receiver, got)
}

func deferProperties(b *bench) {
	b.send(&azservicebus.Message{
		Body: []byte("one"), ApplicationProperties: map[string]any{"colour": "red", "size": int64(5)},
	})
	receiver := b.receiver(nil)
	got := b.receiveOne(receiver)
	number := []int64{*got.SequenceNumber}
	must(receiver.DeferMessage(b.ctx, got, &azservicebus.DeferMessageOptions{
		PropertiesToModify: map[string]any{"colour": "blue"},
	}))
	deferred := get(receiver.ReceiveDeferredMessages(b.ctx, number, nil))
	must(receiver.AbandonMessage(b.ctx, deferred[0], &azservicebus.AbandonMessageOptions{
		PropertiesToModify: map[string]any{"more": "text"},
	}))
	deferred = get(receiver.ReceiveDeferredMessages(b.ctx, number, nil))
	wanted := map[string]any{"colour": "blue", "more": "text", "size": int64(5)}
	same(deferred[0].ApplicationProperties, wanted, "application properties")
	b.complete(receiver, deferred...)
}

func maxDeliveryCount(b *bench) {
	b.send(message("one"))
	receiver := b.receiver(nil)
	for range 2 {
		must(receiver.AbandonMessage(b.ctx, b.receiveOne(receiver), nil))
	}
	dead := b.receiver(deadLetters)
	got := b.receiveOne(dead)
	same(text(got.DeadLetterReason), "MaxDeliveryCountExceeded", "reason")
	b.complete(dead, got)
}

func deferMessage(b *bench) {
	b.send(message("one"))
	receiver := b.receiver(nil)
	got := b.receiveOne(receiver)
	must(receiver.DeferMessage(b.ctx, got, nil))
	b.receiveNothing(receiver)
	number := []int64{*got.SequenceNumber}
	deferred := get(receiver.ReceiveDeferredMessages(b.ctx, number, nil))
	same(bodies(deferred), []string{"one"}, "bodies")
	b.complete(receiver, deferred...)
	_, err := receiver.ReceiveDeferredMessages(b.ctx, number, nil)
	failsWith(err, azservicebus.CodeNotFound)
	b.empty()
}

func deadLetter(b *bench) {
	b.send(message("one"))
	receiver := b.receiver(nil)
	must(receiver.DeadLetterMessage(b.ctx, b.receiveOne(receiver), &azservicebus.DeadLetterOptions{
		Reason: pointer("a reason"), ErrorDescription: pointer("a description"),
	}))
	dead := b.receiver(deadLetters)
	got := b.receiveOne(dead)
	same(string(got.Body), "one", "body")
	same(text(got.DeadLetterReason), "a reason", "reason")
	same(text(got.DeadLetterErrorDescription), "a description", "description")
	b.complete(dead, got)
	b.receiveNothing(dead)
}

func peek(b *bench) {
	b.send(keyed("1"), keyed("2"), keyed("3"))
	receiver := b.receiver(nil)
	peeked := get(receiver.PeekMessages(b.ctx, 10, nil))
	same(bodies(peeked), []string{"1", "2", "3"}, "bodies")
	second := &azservicebus.PeekMessagesOptions{FromSequenceNumber: peeked[1].SequenceNumber}
	same(bodies(get(receiver.PeekMessages(b.ctx, 10, second))), []string{"2", "3"}, "bodies from the second on")
	b.complete(receiver, b.receive(receiver, 3)...)
	b.empty()
}

func schedule(b *bench) {
	sender, receiver := b.sender(), b.receiver(nil)
	due := time.Now().Add(6 * time.Second)
	numbers := get(sender.ScheduleMessages(b.ctx, []*azservicebus.Message{message("later")}, due, nil))
	peeked := get(receiver.PeekMessages(b.ctx, 1, nil))
	same(len(peeked), 1, "number of peeked messages")
	same(*peeked[0].SequenceNumber, numbers[0], "sequence number")
	same(peeked[0].State, azservicebus.MessageStateScheduled, "state")
	got := b.receiveOne(receiver)
	same(string(got.Body), "later", "body")
	want(time.Now().After(due.Add(-time.Second/2)), "the message came too early")
	b.complete(receiver, got)
}

func scheduleCancel(b *bench) {
	sender := b.sender()
	due := time.Now().Add(time.Hour)
	numbers := get(sender.ScheduleMessages(b.ctx, []*azservicebus.Message{keyed("a"), keyed("b")}, due, nil))
	same(len(numbers), 2, "number of sequence numbers")
	must(sender.CancelScheduledMessages(b.ctx, numbers, nil))
	b.empty()
	failsWith(sender.CancelScheduledMessages(b.ctx, numbers, nil), azservicebus.CodeNotFound)
}

func renewLock(b *bench) {
	b.send(message("one"))
	receiver, other := b.receiver(nil), b.receiver(nil)
	got := b.receiveOne(receiver)
	before := *got.LockedUntil
	for time.Now().Before(before) {
		must(receiver.RenewMessageLock(b.ctx, got, nil))
		b.receiveNothing(other)
		want(got.LockedUntil.After(before), "the renewed lock does not end later")
	}
	b.complete(receiver, got)
	b.empty()
}

func lockLost(b *bench) {
	b.send(message("one"))
	receiver, other := b.receiver(nil), b.receiver(nil)
	got := b.receiveOne(receiver)
	again := b.receiveOne(other)
	same(again.DeliveryCount, 2, "second delivery count")
	failsWith(receiver.CompleteMessage(b.ctx, got, nil), azservicebus.CodeLockLost)
	failsWith(receiver.RenewMessageLock(b.ctx, got, nil), azservicebus.CodeLockLost)
	b.complete(other, again)
}

func unknownQueue(b *bench) {
	// The SDK has a code for it, and gives AMQP's error all the same.
	failsFor(b.sender().SendMessage(b.ctx, message("one"), nil), "amqp:not-found")
	_, err := b.receiver(nil).ReceiveMessages(b.ctx, 1, nil)
	failsFor(err, "amqp:not-found")
}

func unknownSubscription(b *bench) {
	_, err := b.subscription("missing", nil).ReceiveMessages(b.ctx, 1, nil)
	failsFor(err, "amqp:not-found")
}

func sessionState(b *bench) {
	receiver := b.session("a")
	want(len(get(receiver.GetSessionState(b.ctx, nil))) == 0, "a new session has a state")
	must(receiver.SetSessionState(b.ctx, []byte("\x00state"), nil))
	same(string(get(receiver.GetSessionState(b.ctx, nil))), "\x00state", "state")
	must(receiver.Close(b.ctx))
	next := b.session("a")
	same(string(get(next.GetSessionState(b.ctx, nil))), "\x00state", "state of the next receiver")
	must(next.SetSessionState(b.ctx, nil, nil))
	want(len(get(next.GetSessionState(b.ctx, nil))) == 0, "the state was not cleared")
}

func sessionNext(b *bench) {
	b.send(ofSession("a", "1"), ofSession("a", "2"), ofSession("a", "3"))
	receiver := b.nextSession()
	same(receiver.SessionID(), "a", "session id")
	want(receiver.LockedUntil().After(time.Now()), "the session's lock has no end")
	messages := b.receive(receiver, 3)
	same(bodies(messages), []string{"1", "2", "3"}, "bodies")
	same(text(messages[0].SessionID), "a", "session id of a message")
	b.complete(receiver, messages...)
	b.receiveNothing(receiver)
}

func sessionNone(b *bench) {
	b.session("a") // the gateway answers; a session without messages is none that is available
	ctx, cancel := context.WithTimeout(b.ctx, 3*time.Second)
	defer cancel()
	_, err := b.client.AcceptNextSessionForQueue(ctx, b.entity, nil)
	// The deadline of the caller and the answer of the gateway come at the same time.
	if !errors.Is(err, context.DeadlineExceeded) {
		failsWith(err, azservicebus.CodeTimeout)
	}
}

func sessionTwo(b *bench) {
	b.send(ofSession("a", "a1"), ofSession("a", "a2"), ofSession("b", "b1"), ofSession("b", "b2"))
	first, second := b.nextSession(), b.nextSession()
	ids := []string{first.SessionID(), second.SessionID()}
	slices.Sort(ids)
	same(ids, []string{"a", "b"}, "session ids")
	for _, receiver := range []*azservicebus.SessionReceiver{first, second} {
		messages := b.receive(receiver, 2)
		id := receiver.SessionID()
		same(bodies(messages), []string{id + "1", id + "2"}, "bodies")
		b.complete(receiver, messages...)
	}
}

func sessionHeld(b *bench) {
	b.send(ofSession("a", "one"))
	receiver := b.session("a")
	got := b.receiveOne(receiver)
	_, err := b.client.AcceptSessionForQueue(b.ctx, b.entity, "a", nil)
	failsFor(err, "com.microsoft:session-cannot-be-locked")
	must(receiver.AbandonMessage(b.ctx, got, nil))
	must(receiver.Close(b.ctx))
	next := b.session("a")
	b.complete(next, b.receiveOne(next))
}

func sessionDefer(b *bench) {
	b.send(ofSession("a", "one"))
	receiver := b.session("a")
	got := b.receiveOne(receiver)
	must(receiver.DeferMessage(b.ctx, got, nil))
	deferred := get(receiver.ReceiveDeferredMessages(b.ctx, []int64{*got.SequenceNumber}, nil))
	same(bodies(deferred), []string{"one"}, "bodies")
	b.complete(receiver, deferred...)
}

func sessionPeek(b *bench) {
	b.send(ofSession("a", "a1"), ofSession("b", "b1"))
	// The SDK does not say which session it peeks at, but by the link that it names.
	peeked := bodies(get(b.session("b").PeekMessages(b.ctx, 10, nil)))
	want(slices.Contains(peeked, "b1"), "bodies are %v", peeked)
}

func sessionRenewLock(b *bench) {
	b.send(ofSession("a", "one"))
	receiver := b.session("a")
	got := b.receiveOne(receiver)
	before := receiver.LockedUntil()
	for time.Now().Before(before) {
		must(receiver.RenewSessionLock(b.ctx, nil))
		want(receiver.LockedUntil().After(before), "the renewed lock does not end later")
		b.receiveNothing(receiver)
	}
	b.complete(receiver, got)
}

func sessionLockLost(b *bench) {
	b.send(ofSession("a", "one"))
	receiver := b.session("a")
	b.receiveOne(receiver)
	other := b.nextSession()
	same(other.SessionID(), "a", "session id")
	again := b.receiveOne(other)
	// No settlement is tried: the SDK would connect again, take the session, and report success. Here it asks for the session
	// again as well, and the other receiver holds it.
	failsFor(receiver.RenewSessionLock(b.ctx, nil), "com.microsoft:session-cannot-be-locked")
	b.complete(other, again)
}

func sessionRequired(b *bench) {
	_, err := b.receiver(nil).ReceiveMessages(b.ctx, 1, nil)
	failsFor(err, "amqp:not-allowed")
}

func sessionUnsupported(b *bench) {
	_, err := b.client.AcceptSessionForQueue(b.ctx, b.entity, "a", nil)
	failsFor(err, "amqp:not-allowed")
}

func sessionMissing(b *bench) {
	refused := []string{"amqp:not-allowed", "com.microsoft:argument-error"}
	failsFor(b.sender().SendMessage(b.ctx, message("one"), nil), refused...)
	twice := &azservicebus.Message{Body: []byte("one"), SessionID: pointer("a"), PartitionKey: pointer("b")}
	failsFor(b.sender().SendMessage(b.ctx, twice, nil), refused...)
}

func sessionList(b *bench) {
	b.send(ofSession("a", "one"), ofSession("b", "one"), ofSession("c", "one"))
	var ids []string
	pager := b.client.NewListSessionsForQueuePager(b.entity, nil)
	for pager.More() {
		ids = append(ids, get(pager.NextPage(b.ctx)).Sessions...)
	}
	slices.Sort(ids)
	same(ids, []string{"a", "b", "c"}, "session ids")
}

func topicAll(b *bench) {
	b.send(message("one"))
	for _, name := range []string{"first", "second"} {
		receiver := b.subscription(name, nil)
		got := b.receiveOne(receiver)
		same(string(got.Body), "one", "body")
		b.complete(receiver, got)
	}
}

func topicRules(b *bench) {
	b.send(
		&azservicebus.Message{Body: []byte("red"), ApplicationProperties: map[string]any{"colour": "red"}},
		&azservicebus.Message{Body: []byte("blue"), Subject: pointer("blue")},
	)
	wanted := map[string][]string{"all": {"blue", "red"}, "sql": {"red"}, "correlation": {"blue"}}
	for name, texts := range wanted {
		receiver := b.subscription(name, nil)
		messages := b.receive(receiver, len(texts))
		same(sorted(messages), texts, "bodies of "+name)
		b.complete(receiver, messages...)
		b.receiveNothing(receiver)
		mixed := messages[0].ApplicationProperties["mixed"]
		want(name != "sql" || mixed == "purple", "the rule's action was not applied")
	}
}

func topicDeadLetter(b *bench) {
	b.send(message("one"))
	receiver := b.subscription("all", nil)
	options := &azservicebus.DeadLetterOptions{Reason: pointer("a reason")}
	must(receiver.DeadLetterMessage(b.ctx, b.receiveOne(receiver), options))
	dead := b.subscription("all", deadLetters)
	got := b.receiveOne(dead)
	same(text(got.DeadLetterReason), "a reason", "reason")
	b.complete(dead, got)
}

func topicSession(b *bench) {
	b.send(ofSession("a", "one"))
	receiver := get(b.client.AcceptNextSessionForSubscription(b.ctx, b.entity, "all", nil))
	same(receiver.SessionID(), "a", "session id")
	b.complete(receiver, b.receiveOne(receiver))
}
