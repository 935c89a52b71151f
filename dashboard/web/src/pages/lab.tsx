import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, send } from '../api';
import { num, plural, span, time } from '../format';
import { useResource } from '../hooks';
import { serverNow } from '../live';
import { isAdmin, session } from '../session';
import type { Algorithm, Take, Unshaped } from '../types';
import { Problem } from '../ui/dialog';
import { Chart } from '../ui/chart';
import { Badge } from '../ui/icon';
import { Loaded } from '../ui/states';
import { Stat, Stats } from '../ui/table';

/** The algorithms, to try by hand on the live Redis. */
export function LabPage() {
	const lab = useResource<{ algorithms: Algorithm[] }>(['lab']);
	return (
		<>
			<p class="intro">Each card is a limiter in this Redis, shared by everyone who uses this page. Solid bars are requests that were let through, hollow bars are refused requests, and striped bars to the right of now are requests with a later slot.</p>
			<Loaded of={lab} lines={8}>{({ algorithms }) => <div class="lab">{algorithms.map((a) => <Card key={a.id} of={a} />)}</div>}</Loaded>
			{session.value?.demo && isAdmin.value && <UnshapedSwitch />}
		</>
	);
}

/** The past and the future in a chart and the width of a bar, in ms; and how many results are kept. */
const past = 20_000, ahead = 10_000, bin = 250, kept = 200;

function Card({ of: a }: { of: Algorithm }) {
	const [takes, setTakes] = useState<Take[]>([]), [error, setError] = useState<unknown>(null), [busy, setBusy] = useState(false);
	const run = async (call: () => Promise<Take[]>) => {
		setBusy(true);
		try {
			const results = await call();
			setTakes((before) => (results.length ? [...before, ...results].slice(-kept) : []));
			setError(null);
		} catch (e) {
			setError(e);
		}
		setBusy(false);
	};
	const take = (n: number) => () => void run(async () => (await send<{ results: Take[] }>('POST', ['lab', a.id, 'take'], { n })).results);
	const reset = () => void run(async () => (await send('POST', ['lab', a.id, 'reset'], {}), []));
	const last = takes.at(-1);
	return (
		<section class="card algorithm" aria-labelledby={a.id}>
			<header><h2 id={a.id}>{a.title}</h2><small>{a.rule}{a.burst ? `, burst ${num(a.burst)}` : ''}{a.capacity ? `, capacity ${num(a.capacity)}` : ''}</small></header>
			<p>{a.describe}</p>
			<LetThrough of={takes} />
			<div class="said" role="status">{error != null ? <Problem error={error} /> : last ? <Said of={takes} last={last} places={a.mode === 'shaping' ? a.capacity : undefined} /> : 'Nothing sent yet.'}</div>
			{!session.value?.read_only && (
				<div class="actions">
					<button type="button" class="primary" disabled={busy} onClick={take(1)}>Send request</button>
					<button type="button" disabled={busy} onClick={take(10)}>Burst 10</button>
					<button type="button" disabled={busy} onClick={reset}>Reset</button>
				</div>
			)}
			<pre class="headers" tabIndex={0} aria-label={`Headers of the last answer, ${a.title}`}>{Object.entries(last?.headers ?? {}).map(([name, value]) => `${name}: ${value}`).join('\n') || 'No headers yet.'}</pre>
		</section>
	);
}

function Said({ of, last, places }: { of: Take[]; last: Take; places: number | undefined }) {
	const together = of.filter((t) => Math.abs(time(t.at) - time(last.at)) < 250), through = together.filter((t) => t.allowed).length;
	return (
		<>
			{last.allowed ? <Badge tone="good">{last.delay_seconds ? `Goes in ${span(last.delay_seconds * 1000)}` : 'Let through'}</Badge> : <Badge tone="bad">Refused</Badge>}{' '}
			{together.length > 1 && <>{through} of {together.length} let through. </>}
			<b>{num(last.remaining)}</b> {places ? `of ${num(places)} places left` : 'remaining'}{last.retry_after_seconds ? `, again in ${span(last.retry_after_seconds * 1000)}` : ''}
		</>
	);
}

/** Requests on a time line: those let through, now or later, and above them those refused. */
function LetThrough({ of }: { of: Take[] }) {
	const [now, setNow] = useState(serverNow());
	const idle = of.length === 0;
	useEffect(() => {
		setNow(serverNow());
		if (idle) return;
		const timer = setInterval(() => document.hidden || setNow(serverNow()), 250);
		return () => clearInterval(timer);
	}, [idle, of]);
	const bins = new Map<number, { yes: number; no: number }>();
	for (const t of of) {
		const at = Math.floor((time(t.at) + (t.delay_seconds ?? 0) * 1000) / bin) * bin;
		if (at < now - past || at > now + ahead) continue;
		const here = bins.get(at) ?? { yes: 0, no: 0 };
		here[t.allowed ? 'yes' : 'no']++;
		bins.set(at, here);
	}
	const all = [...bins], sum = (what: 'yes' | 'no') => all.reduce((n, [, b]) => n + b[what], 0);
	return (
		<div class="let-through" role="img" aria-label={`The last ${past / 1000} and the next ${ahead / 1000} seconds: ${plural(sum('yes'), 'request')} let through, ${num(sum('no'))} refused`}>
			{all.map(([at, { yes, no }]) => (
				<i key={at} class={at > now ? 'later' : ''} style={{ '--at': (at - now + past) / (past + ahead), '--yes': Math.min(yes, 12), '--no': Math.min(no, 12) }} />
			))}
		</div>
	);
}

/** The calls of each second since the page was opened. */
function useCalls(now: Unshaped | null) {
	const seen = useRef<{ last: Unshaped | null; at: number; x: number[]; sent: number[]; rejected: number[] }>({ last: null, at: 0, x: [], sent: [], rejected: [] }), s = seen.current;
	if (now && now !== s.last) {
		const at = serverNow() / 1000, passed = at - s.at;
		if (s.last) {
			s.x.push(at);
			s.sent.push(Math.max(now.sent - s.last.sent, 0) / passed);
			s.rejected.push(Math.max(now.rejected - s.last.rejected, 0) / passed);
			if (s.x.length > 600) for (const list of [s.x, s.sent, s.rejected]) list.shift();
		}
		s.last = now;
		s.at = at;
	}
	return s;
}

/** Shows what happens when the calls of a tenant are not shaped. */
function UnshapedSwitch() {
	const state = useResource<Unshaped>(['lab', 'unshaped'], undefined, 1);
	const [error, setError] = useState<unknown>(null);
	const s = useCalls(state.data);
	if (state.error instanceof ApiError && state.error.status === 404) return null;
	return (
		<section class="card unshaped" aria-labelledby="unshaped">
			<Loaded of={state} lines={3}>{(u) => (
				<>
					<header>
						<h2 id="unshaped">Without Headgate</h2>
						{u.on ? <Badge tone="bad" icon="warn">Unshaped</Badge> : <Badge tone="good">Shaped</Badge>}
						<button type="button" role="switch" aria-checked={u.on} onClick={() => send('POST', ['lab', 'unshaped'], { on: !u.on }).then(() => (setError(null), state.refresh()), setError)}>
							{u.on ? 'Shape again' : 'Send unshaped'}
						</button>
					</header>
					<p>{u.on ? <>Workers send the calls of <b><bdi>{u.tenant}</bdi></b> as fast as they can. Watch the provider refuse them.</>
						: <>Sends the calls of the demo tenant <b><bdi>{u.tenant}</bdi></b> without limits, to show how the provider refuses them.</>}</p>
					{error != null && <Problem error={error} />}
					<Stats>
						<Stat label="Accepted by the provider">{num(u.sent)}</Stat>
						<Stat label="Refused by the provider" tone={u.rejected > 0 ? 'bad' : undefined} note={u.rejected > 0 ? `${num(Math.round((u.rejected / (u.sent + u.rejected)) * 100))} % of its calls` : null}>{num(u.rejected)}</Stat>
					</Stats>
					<Chart x={s.x} height={96} summary="Calls of the tenant since this page was opened, accepted and refused by the provider, each second."
						series={[{ label: 'Accepted', colour: '--accent', values: s.sent }, { label: 'Refused', colour: '--bad', values: s.rejected }]} />
				</>
			)}</Loaded>
		</section>
	);
}
