package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
)

// A value in canonical form is a pair of its AMQP type and its content. If the SDK does not tell types apart, the first has
// each of them.
type canonical = []any

var (
	identity = amqp.UUID{0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
	instant  = time.Date(2025, 1, 2, 3, 4, 5, 678_000_000, time.UTC)
	values   = map[string]any{
		"null":         nil,
		"true":         true,
		"false":        false,
		"byte":         int8(-5),
		"ubyte":        uint8(200),
		"short":        int16(-300),
		"ushort":       uint16(60_000),
		"int":          int32(5),
		"int-largest":  int32(1<<31 - 1),
		"uint":         uint32(1<<32 - 1),
		"long":         int64(1 << 40),
		"negative":     int64(-7),
		"long-largest": int64(1<<63 - 1),
		"ulong":        uint64(1<<64 - 1),
		"float":        float32(1.5),
		"double":       1.5,
		"string":       "text ü",
		"string-empty": "",
		"string-long":  strings.Repeat("x", 300),
		"symbol":       amqp.Symbol("symbol"),
		"binary":       []byte{0, 255},
		"uuid":         identity,
		"timestamp":    instant,
	}
)

// typed returns a value in canonical form.
func typed(value any) canonical {
	switch value := value.(type) {
	case nil:
		return canonical{"null", nil}
	case bool:
		return canonical{"boolean", value}
	case string: // symbols are shown so, too
		return canonical{"string|symbol", value}
	case amqp.Symbol:
		return canonical{"symbol", string(value)}
	case []byte:
		return canonical{"binary", base64.StdEncoding.EncodeToString(value)}
	case amqp.UUID:
		return canonical{"uuid", value.String()}
	case time.Time:
		return canonical{"timestamp", strconv.FormatInt(value.UnixMilli(), 10)}
	}
	return typedByKind(reflect.ValueOf(value))
}

func typedByKind(value reflect.Value) canonical {
	names := map[reflect.Kind]string{
		reflect.Int8: "byte", reflect.Int16: "short", reflect.Int32: "int", reflect.Int64: "long",
		reflect.Uint8: "ubyte", reflect.Uint16: "ushort", reflect.Uint32: "uint", reflect.Uint64: "ulong",
		reflect.Float32: "float", reflect.Float64: "double",
	}
	if name, found := names[value.Kind()]; found {
		return canonical{name, fmt.Sprint(value.Interface())}
	}
	switch value.Kind() {
	case reflect.Pointer:
		return typedByKind(value.Elem())
	case reflect.Struct:
		// The type of described values is internal to the SDK.
		if inner := value.FieldByName("Value"); inner.IsValid() {
			return canonical{"described", canonical{typed(value.FieldByName("Descriptor").Interface()), typed(inner.Interface())}}
		}
	case reflect.Slice, reflect.Array:
		items := canonical{}
		for index := range value.Len() {
			items = append(items, typed(value.Index(index).Interface()))
		}
		return canonical{"array|list", items}
	case reflect.Map:
		items := canonical{}
		for _, key := range value.MapKeys() {
			items = append(items, canonical{typed(key.Interface()), typed(value.MapIndex(key).Interface())})
		}
		return canonical{"map", items}
	}
	panic(failure(fmt.Sprintf("a value of kind %s has no canonical form", value.Kind())))
}

func section[K comparable](part map[K]any) map[string]canonical {
	values := map[string]canonical{}
	for key, value := range part {
		values[fmt.Sprint(key)] = typed(value)
	}
	return values
}

func property(value any) any {
	if value == nil {
		return nil
	}
	return typed(value)
}

func plain(id any) string {
	if uuid, is := id.(amqp.UUID); is {
		return uuid.String()
	}
	return fmt.Sprint(id)
}

// form returns a message with its AMQP sections in canonical form.
func form(message *azservicebus.AMQPAnnotatedMessage) map[string]any {
	header, properties := message.Header, message.Properties
	if header == nil {
		header = &azservicebus.AMQPAnnotatedMessageHeader{Priority: 4}
	}
	var ttl *int64
	if header.TTL != 0 {
		ttl = pointer(header.TTL.Milliseconds())
	}
	annotations := section(message.MessageAnnotations)
	for key := range annotations {
		if strings.HasPrefix(key, "x-opt-") && key != "x-opt-partition-key" {
			delete(annotations, key)
		}
	}
	var user any
	if len(properties.UserID) > 0 {
		user = typed(properties.UserID)
	}
	return map[string]any{
		"id":     plain(properties.MessageID),
		"body":   body(&message.Body),
		"header": map[string]any{"durable": header.Durable, "priority": header.Priority, "ttl": ttl},
		"properties": map[string]any{
			"message-id":        property(properties.MessageID),
			"correlation-id":    property(properties.CorrelationID),
			"user-id":           user,
			"subject":           properties.Subject,
			"content-type":      properties.ContentType,
			"content-encoding":  properties.ContentEncoding,
			"to":                properties.To,
			"reply-to":          properties.ReplyTo,
			"group-id":          properties.GroupID,
			"reply-to-group-id": properties.ReplyToGroupID,
		},
		"application-properties": section(message.ApplicationProperties),
		"annotations":            annotations,
		"footer":                 section(message.Footer),
	}
}

func body(part *azservicebus.AMQPAnnotatedMessageBody) canonical {
	switch {
	case part.Data != nil:
		sections := canonical{}
		for _, data := range part.Data {
			sections = append(sections, base64.StdEncoding.EncodeToString(data))
		}
		return canonical{"data", sections}
	case part.Sequence != nil:
		sections := canonical{}
		for _, sequence := range part.Sequence {
			items := canonical{}
			for _, item := range sequence {
				items = append(items, typed(item))
			}
			sections = append(sections, items)
		}
		return canonical{"sequence", sections}
	}
	return canonical{"value", typed(part.Value)}
}

// typedMessages returns messages with every kind of body, and every type of value.
func typedMessages() []*azservicebus.AMQPAnnotatedMessage {
	var messages []*azservicebus.AMQPAnnotatedMessage
	add := func(id any, body azservicebus.AMQPAnnotatedMessageBody) *azservicebus.AMQPAnnotatedMessage {
		message := &azservicebus.AMQPAnnotatedMessage{
			Body: body, Properties: &azservicebus.AMQPAnnotatedMessageProperties{MessageID: id},
		}
		messages = append(messages, message)
		return message
	}
	data := func(sections ...string) azservicebus.AMQPAnnotatedMessageBody {
		bytes := [][]byte{}
		for _, section := range sections {
			bytes = append(bytes, []byte(section))
		}
		return azservicebus.AMQPAnnotatedMessageBody{Data: bytes}
	}
	value := func(value any) azservicebus.AMQPAnnotatedMessageBody {
		return azservicebus.AMQPAnnotatedMessageBody{Value: value}
	}
	sequence := func(sequences ...[]any) azservicebus.AMQPAnnotatedMessageBody {
		return azservicebus.AMQPAnnotatedMessageBody{Sequence: sequences}
	}

	add("data", data("\x00bytes\xff"))
	add("data-empty", data(""))
	add("data-sections", data("one", "two"))
	names := []string{}
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if values[name] != nil { // the SDK has no body then
			add("value-"+name, value(values[name]))
		}
	}
	add("value-list", value([]any{int64(1), "two", nil, []any{3.5}}))
	add("value-map", value(map[string]any{"a": int64(1), "b": map[string]any{"c": []byte{1}}}))
	add("value-array", value([]int32{1, 2, 3}))
	add("sequence", sequence([]any{int64(1), "two", nil}))
	add("sequences", sequence([]any{int64(1)}, []any{"two", int64(3)}))
	add("application-properties", data("")).ApplicationProperties = values

	annotated := add("annotations", data(""))
	annotated.MessageAnnotations = map[any]any{
		"x-opt-partition-key": "key", "test-annotation": "text", "test-number": int64(5),
	}
	annotated.Footer = map[any]any{"test-footer": "text"}
	annotated.Header = &azservicebus.AMQPAnnotatedMessageHeader{Durable: true, Priority: 7, TTL: time.Hour}

	properties := add("properties", data("")).Properties
	properties.CorrelationID = "correlation"
	properties.Subject = pointer("subject")
	properties.ContentType = pointer("text/plain")
	properties.ContentEncoding = pointer("utf-8")
	properties.To = pointer("to")
	properties.ReplyTo = pointer("reply-to")
	properties.GroupID = pointer("group")
	properties.ReplyToGroupID = pointer("reply-to-group")
	properties.UserID = []byte("user")

	add(identity, data("")).Properties.CorrelationID = identity
	add(uint64(17), data("")).Properties.CorrelationID = uint64(18)
	return messages
}

// sendTypes sends the messages, and prints each in canonical form.
func sendTypes(queue string) {
	ctx := context.Background()
	client := openClient()
	defer client.Close(ctx) //nolint:errcheck // everything is sent
	sender := get(client.NewSender(queue, nil))
	for _, message := range typedMessages() {
		must(sender.SendAMQPAnnotatedMessage(ctx, message, nil))
		say(form(message))
	}
}

// receiveTypes receives so many messages, and prints each in canonical form.
func receiveTypes(queue string, count int) {
	ctx := context.Background()
	client := openClient()
	defer client.Close(ctx) //nolint:errcheck // everything is completed
	receiver := get(client.NewReceiverForQueue(queue, nil))
	for count > 0 {
		waiting, cancel := context.WithTimeout(ctx, patience)
		received := get(receiver.ReceiveMessages(waiting, count, nil))
		cancel()
		for _, message := range received {
			say(form(message.RawAMQPMessage))
			must(receiver.CompleteMessage(ctx, message, nil))
		}
		count -= len(received)
	}
}
