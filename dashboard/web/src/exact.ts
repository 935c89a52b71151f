// JSON as it is written: JSON.parse rounds numbers beyond 2^53, and 1.10 becomes 1.1.

const tokens = /"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\],:]|[^\s"{}[\],:]+/g;
const opens = (token: string) => token === '{' || token === '[';
const closes = (token: string) => token === '}' || token === ']';

/** The JSON of a member of an object; undefined if there is none. */
function member(object: string, name: string): string | undefined {
	let depth = 0, before = '', key = '', from = 0;
	for (const { 0: token, index } of object.matchAll(tokens)) {
		if (depth === 1 && token === ':') [key, from] = [before, index + 1];
		if (depth === 1 && (token === ',' || token === '}') && key === `"${name}"`) return object.slice(from, index).trim();
		depth += Number(opens(token)) - Number(closes(token));
		before = token;
	}
	return undefined;
}

// Deeper levels are not indented any further: with 10,000 of them, spaces alone would take 200 MB.
const deepest = 40;

function indented(json: string): string {
	let text = '', depth = 0, before = '';
	for (const token of json.match(tokens) ?? []) {
		if (closes(token)) depth--;
		if (before === ',' || opens(before) !== closes(token)) text += '\n' + '  '.repeat(Math.min(depth, deepest));
		text += token === ':' ? ': ' : token.startsWith('"') ? JSON.stringify(JSON.parse(token)) : token;
		if (opens(token)) depth++;
		before = token;
	}
	return text;
}

/** A member of an object for people: a string as it is, anything else as indented JSON; undefined for null or nothing. */
export function shown(object: string, name: string): string | undefined {
	const json = member(object, name);
	if (json === undefined || json === 'null') return undefined;
	return json.startsWith('"') ? JSON.parse(json) : indented(json);
}
