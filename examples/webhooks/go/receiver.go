// Webhook receiver for the pushes of a hub, with Go's standard library only.
//
//	WEBHOOK_KEY=whsec_… PORT=8001 go run receiver.go
//
// It verifies the signature, repeats the challenge, drops repetitions by the ids of the chain, and prints each event
// once. Keep last where your data is, in one transaction with it, and the effect of an event is there once.
package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	tolerance = 300 * time.Second // between the clock of the hub and this one
	bodyMax   = 64 << 20          // bytes; a text has 10 MB at most, and a control character six bytes in JSON
)

// Event has the members of a push that this program uses; ids are texts, since they exceed 2^53.
type Event struct {
	Type       string          `json:"type"`
	Challenge  string          `json:"challenge"`
	ID         int64           `json:"id,string"`
	PrevID     int64           `json:"prev_id,string"`
	Key        *string         `json:"key"`
	Data       json.RawMessage `json:"data"`
	DataBase64 *string         `json:"data_base64"`
}

var (
	keys [][]byte
	lock sync.Mutex
	last int64 // id of the last event that was processed
)

func isSigned(header http.Header, body []byte) bool {
	id, timestamp := header.Get("webhook-id"), header.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return false
	}
	if age := time.Since(time.Unix(seconds, 0)); age > tolerance || age < -tolerance {
		return false
	}
	given := strings.SplitN(header.Get("webhook-signature"), " ", 17)
	if len(given) > 16 {
		given = given[:16]
	}
	right := false
	for _, key := range keys {
		mac := hmac.New(sha256.New, key)
		io.WriteString(mac, id+"."+timestamp+".")
		mac.Write(body)
		expected := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
		for _, text := range given {
			if hmac.Equal([]byte(text), []byte(expected)) {
				right = true
			}
		}
	}
	return right
}

// take processes an event that may be a repetition.
func take(event Event) {
	lock.Lock()
	defer lock.Unlock()
	if event.ID <= last {
		return
	}
	if last > 0 && event.PrevID > last {
		fmt.Printf("gap: read the history from %d to %d\n", last, event.PrevID)
	}
	key, data := "-", event.Data
	if event.Key != nil {
		key = *event.Key
	}
	if event.DataBase64 != nil {
		data, _ = json.Marshal(*event.DataBase64)
	}
	if data == nil {
		data = json.RawMessage("null")
	}
	var line bytes.Buffer
	if err := json.Compact(&line, data); err == nil {
		fmt.Println(event.ID, key, line.String())
	}
	last = event.ID
}

func receive(response http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodPost {
		response.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(response, request.Body, bodyMax))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		response.WriteHeader(http.StatusRequestEntityTooLarge)
		return
	case err != nil:
		response.WriteHeader(http.StatusBadRequest)
		return
	case !isSigned(request.Header, body):
		response.WriteHeader(http.StatusUnauthorized)
		return
	}
	var event Event
	if err := json.Unmarshal(body, &event); err != nil {
		log.Print(err)
		response.WriteHeader(http.StatusInternalServerError)
		return
	}
	if event.Type == "challenge" {
		io.WriteString(response, event.Challenge)
		return
	}
	// Only when it was processed: with 2xx the hub goes on to the next event.
	take(event)
	response.WriteHeader(http.StatusNoContent)
}

func main() {
	for _, text := range strings.Fields(os.Getenv("WEBHOOK_KEY")) {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, "whsec_"))
		if err != nil {
			log.Fatal("WEBHOOK_KEY: ", err)
		}
		keys = append(keys, key)
	}
	port := os.Getenv("PORT")
	if port == "" {
		port = "8001"
	}
	server := http.Server{
		Addr:        "127.0.0.1:" + port,
		Handler:     http.HandlerFunc(receive),
		ReadTimeout: 20 * time.Second,
		IdleTimeout: time.Minute,
	}
	log.Fatal(server.ListenAndServe())
}
