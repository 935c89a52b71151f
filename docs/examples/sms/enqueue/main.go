// Command enqueue enqueues a text message to the number that it is called with.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/docs/examples/sms"
	"github.com/headgate/headgate/queue"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: enqueue NUMBER")
	}
	options, err := queue.ParseRedisURL("redis://127.0.0.1:6379")
	if err != nil {
		log.Fatal(err)
	}
	client := queue.NewClient(redis.NewUniversalClient(options))
	receipt, err := client.Enqueue(context.Background(), sms.Send.Job("acme", sms.Message{To: os.Args[1], Text: "Your order is on its way."}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(receipt.ID)
}
