// Runs the search worker of a built site outside a browser: `node site_search.mjs SITE` reads a JSON list of queries on
// stdin and writes, for each, the locations of the results in the order in which the site shows them.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import vm from "node:vm";

const site = process.argv[2];
const workers = join(site, "assets", "javascripts", "workers");
const [name] = readdirSync(workers).filter((file) => /^search\..*\.js$/.test(file));

let answered;
const worker = { postMessage: (message) => answered(message) };
vm.runInNewContext(readFileSync(join(workers, name), "utf8"), { self: worker, Intl });

function ask(type, data) {
  return new Promise((resolve, reject) => {
    answered = (message) => (message.type === 4 ? reject(new Error("the search failed")) : resolve(message.data));
    worker.onmessage({ data: structuredClone({ type, data }) });
  });
}

// The types of message: 0 the index, 1 ready, 2 a query, 3 its results, 4 a failure.
const index = JSON.parse(readFileSync(join(site, "search.json"), "utf8"));
await ask(0, index);
const filter = {
  input: { type: "operator", data: { operator: "and", operands: [] } },
  aggregation: { input: [{ type: "term", data: { field: "tags" } }] },
};
const found = [];
for (const input of JSON.parse(readFileSync(0, "utf8"))) {
  const { items } = await ask(2, { input, filter });
  found.push(items.map((item) => index.items[item.id]?.location ?? item));
}
process.stdout.write(JSON.stringify(found));
