// Calls of the unmodified @google-cloud/pubsub in REST mode, one after the other; each prints a line of JSON, or the test fails.
//
//     node pubsub.mjs MODULES HOST TOKEN CASE
import { createRequire } from "node:module";
import assert from "node:assert/strict";
import { createServer } from "node:http";

const [modules, host, token, name] = process.argv.slice(2);
const require = createRequire(modules);
const { PubSub, v1 } = require("@google-cloud/pubsub");
const { OAuth2Client, PassThroughClient } = require("google-auth-library");

const [address, port] = host.split(":");
const authClient = token ? new OAuth2Client() : new PassThroughClient();
if (token) authClient.setCredentials({ access_token: token });
const options = { fallback: true, protocol: "http", projectId: "o", authClient };
const pubsub = new PubSub({ ...options, apiEndpoint: host });
const generated = { ...options, apiEndpoint: address, port: Number(port) };
const publisher = new v1.PublisherClient(generated), subscriber = new v1.SubscriberClient(generated);

const suffix = `${name}-${process.pid}`;
const topic = `projects/o/topics/tt-${suffix}`, dead = `projects/o/topics/dead-${suffix}`;
const subscription = `projects/o/subscriptions/ss-${suffix}`;

// REST mode of this library repeats nothing: 503 is that of a hub being restarted.
async function patiently(call) {
  for (const end = Date.now() + 60_000; ; ) {
    try {
      return await call();
    } catch (error) {
      if (error.code !== 503 || Date.now() > end) throw error;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}

async function fails(call, code, text) {
  await assert.rejects(() => patiently(call), (error) => {
    assert.equal(error.code, code, `${error.code} ${error.message}`);
    assert.match(error.message, text);
    return true;
  });
}

async function pull(most = 100) {
  const [{ receivedMessages = [] }] = await patiently(() => subscriber.pull({ subscription, maxMessages: most }));
  return receivedMessages;
}

const acknowledge = (messages) =>
  patiently(() => subscriber.acknowledge({ subscription, ackIds: messages.map((each) => each.ackId) }));

const texts = (messages) => messages.map((each) => Buffer.from(each.message.data).toString());

async function make(fields = {}) {
  await patiently(() => pubsub.createTopic(`tt-${suffix}`));
  const [made] = await patiently(() => subscriber.createSubscription({ name: subscription, topic, ...fields }));
  return made;
}

async function receiver(status) {
  const requests = [];
  const server = createServer((request, response) => {
    const parts = [];
    request.on("data", (part) => parts.push(part));
    request.on("end", () => {
      requests.push(JSON.parse(Buffer.concat(parts).toString()));
      response.writeHead(status).end();
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { requests, url: `http://127.0.0.1:${server.address().port}/push`, server };
}

async function until(true_) {
  for (const end = Date.now() + 60_000; !true_(); ) {
    assert.ok(Date.now() < end, true_.toString());
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

const cases = {
  async resources() {
    const [made] = await publisher.createTopic({ name: topic, labels: { a: "b" } });
    assert.deepEqual([made.name, made.labels], [topic, { a: "b" }]);
    await fails(() => publisher.createTopic({ name: topic }), 409, /Resource already exists in the project/);
    const [changed] = await publisher.updateTopic({
      topic: { name: topic, messageRetentionDuration: { seconds: 3600 } }, updateMask: { paths: ["message_retention_duration"] },
    });
    assert.equal(Number(changed.messageRetentionDuration.seconds), 3600);
    const [topics] = await publisher.listTopics({ project: "projects/o" });
    assert.ok(topics.some((each) => each.name === topic));
    await subscriber.createSubscription({ name: subscription, topic, ackDeadlineSeconds: 60, filter: "attributes:a" });
    const [found] = await subscriber.getSubscription({ subscription });
    assert.deepEqual([found.ackDeadlineSeconds, found.filter, found.state], [60, "attributes:a", "ACTIVE"]);
    const [patched] = await subscriber.updateSubscription({
      subscription: { name: subscription, ackDeadlineSeconds: 30 }, updateMask: { paths: ["ack_deadline_seconds"] },
    });
    assert.equal(patched.ackDeadlineSeconds, 30);
    const [names] = await publisher.listTopicSubscriptions({ topic });
    assert.deepEqual(names, [subscription]);
    await publisher.detachSubscription({ subscription });
    await fails(() => pull(), 400, /detached/);
    await subscriber.deleteSubscription({ subscription });
    await fails(() => subscriber.getSubscription({ subscription }), 404, /Resource not found/);
    await fails(() => subscriber.listSnapshots({ project: "projects/o" }), 501, /snapshots/);
    await publisher.deleteTopic({ topic });
  },
  async messages() {
    await make({ retainAckedMessages: true });
    const start = Math.floor(Date.now() / 1000) - 1;
    const ids = [];
    for (let number = 0; number < 10; number++) {
      ids.push(await pubsub.topic(`tt-${suffix}`).publishMessage({ data: Buffer.from(`${number}`), attributes: { k: "v" } }));
    }
    const messages = await pull();
    assert.deepEqual(messages.map((each) => each.message.messageId), ids);
    assert.deepEqual(texts(messages), ids.map((_, number) => `${number}`));
    assert.deepEqual(messages[0].message.attributes, { k: "v" });
    const refused = messages.slice(5).map((each) => each.ackId);
    await subscriber.modifyAckDeadline({ subscription, ackIds: refused, ackDeadlineSeconds: 0 });
    await acknowledge(messages.slice(0, 5));
    const again = await pull();
    assert.deepEqual(texts(again), ["5", "6", "7", "8", "9"]);
    await acknowledge(again);
    await subscriber.seek({ subscription, time: { seconds: start } });
    assert.equal((await pull()).length, 10);
  },
  async ordered() {
    await make({ enableMessageOrdering: true });
    const ordered = pubsub.topic(`tt-${suffix}`, { messageOrdering: true });
    await Promise.all([...Array(20).keys()].map((n) => ordered.publishMessage({ data: Buffer.from(`${n}`), orderingKey: "k" })));
    const found = [];
    while (found.length < 20) {
      const messages = await pull();
      found.push(...texts(messages));
      await acknowledge(messages);
    }
    assert.deepEqual(found, [...Array(20).keys()].map(String));
  },
  async pushes() {
    const good = await receiver(200), bad = await receiver(500);
    await publisher.createTopic({ name: dead });
    await make({ pushConfig: { pushEndpoint: bad.url }, deadLetterPolicy: { deadLetterTopic: dead, maxDeliveryAttempts: 5 } });
    await subscriber.createSubscription({ name: subscription + "-dead", topic: dead, pushConfig: { pushEndpoint: good.url } });
    await pubsub.topic(`tt-${suffix}`).publishMessage({ data: Buffer.from("a") });
    await until(() => good.requests.length === 1);
    assert.deepEqual(bad.requests.map((each) => each.deliveryAttempt), [1, 2, 3, 4, 5]);
    assert.equal(good.requests[0].message.attributes.CloudPubSubDeadLetterSourceDeliveryCount, "5");
    await subscriber.modifyPushConfig({ subscription, pushConfig: {} });
    await pubsub.topic(`tt-${suffix}`).publishMessage({ data: Buffer.from("b") });
    assert.deepEqual(texts(await pull()), ["b"]);
    for (const { server } of [good, bad]) server.close().closeAllConnections();
  },
  async credentials() {
    await fails(() => publisher.getTopic({ topic }), 401, /UNAUTHENTICATED/);
  },
  // The test kills the hub meanwhile.
  async restarts() {
    await make();
    const sent = new Set(), seen = new Set();
    for (const end = Date.now() + 12_000; Date.now() < end; ) {
      sent.add(await patiently(() => pubsub.topic(`tt-${suffix}`).publishMessage({ data: Buffer.from(`${sent.size}`) })));
      if (sent.size % 10 === 0) {
        const messages = await pull();
        for (const each of messages) seen.add(each.message.messageId);
        if (messages.length) await acknowledge(messages);
      }
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    for (const end = Date.now() + 60_000; [...sent].some((id) => !seen.has(id)) && Date.now() < end; ) {
      const messages = await pull();
      for (const each of messages) seen.add(each.message.messageId);
      if (messages.length) await acknowledge(messages);
    }
    assert.deepEqual([...sent].filter((id) => !seen.has(id)), []);
  },
};

await cases[name]();
await publisher.close();
await subscriber.close();
console.log("done");
process.exit(0);
