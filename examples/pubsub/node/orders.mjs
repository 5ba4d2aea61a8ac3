// Orders over the hub's push API, with the unmodified @google-cloud/pubsub in REST mode (docs/push.md).
//
//     npm install
//     node orders.mjs localhost:7999 [TOKEN]
//
// The route of that host leads to the hub, as `* hub`: this client's REST mode has no paths.
import { PubSub, v1 } from "@google-cloud/pubsub";
import { OAuth2Client, PassThroughClient } from "google-auth-library";

const [host, token] = process.argv.slice(2);
const project = "shop";
const topicName = `projects/${project}/topics/orders`;
const subscription = `projects/${project}/subscriptions/invoices`;

function credentials() {
  if (!token) return new PassThroughClient();
  const client = new OAuth2Client();
  client.setCredentials({ access_token: token });
  return client;
}

const [address, port] = host.split(":");
const options = { fallback: true, protocol: "http", projectId: project, authClient: credentials() };
const pubsub = new PubSub({ ...options, apiEndpoint: host });
const subscriber = new v1.SubscriberClient({ ...options, apiEndpoint: address, port: Number(port) });

// This client repeats nothing in REST mode, not even 503, with which a hub answers that is being restarted.
async function patiently(call) {
  for (let pause = 100; ; pause *= 2) {
    try {
      return await call();
    } catch (error) {
      if (error.code !== 503 || pause > 10_000) throw error;
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }
}

async function make(call) {
  try {
    await patiently(call);
  } catch (error) {
    if (error.code !== 409) throw error;
  }
}

const topic = pubsub.topic("orders", { messageOrdering: true });
await make(() => pubsub.createTopic("orders"));
await make(() => subscriber.createSubscription({ name: subscription, topic: topicName, enableMessageOrdering: true }));
for (let number = 0; number < 3; number++) {
  const data = Buffer.from(`order ${number}`);
  const id = await patiently(() => topic.publishMessage({ data, orderingKey: "customer 7", attributes: { country: "no" } }));
  console.log("published", id);
}
for (let missing = 3; missing > 0; ) {
  const [{ receivedMessages = [] }] = await patiently(() => subscriber.pull({ subscription, maxMessages: 10 }));
  for (const { message } of receivedMessages) console.log("received", Buffer.from(message.data).toString(), message.attributes);
  if (receivedMessages.length) {
    const ackIds = receivedMessages.map((each) => each.ackId);
    await patiently(() => subscriber.acknowledge({ subscription, ackIds }));
    missing -= ackIds.length;
  }
}
await subscriber.close();
