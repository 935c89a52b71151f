import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { ApiError, send, type FieldError } from '../api';
import { clock, fineSpan, num, percent, plural, time } from '../format';
import { useResource } from '../hooks';
import { tick } from '../live';
import type { Trial, TrialLimit, TrialTenant, Waiting } from '../types';
import { Card } from '../ui/card';
import { Problem } from '../ui/dialog';
import { Bar } from '../ui/meter';
import { Name, TenantLink } from '../ui/name';
import { EmptyState, Loaded } from '../ui/states';
import { Table } from '../ui/table';

/** The limits files that were typed, by queue. They are kept until the tab is closed. */
const drafts = new Map<string, string>();

/** Shows how the jobs of the last day would have waited under other limits. */
export function TrialPage({ queue }: { queue: string }) {
	const published = useResource<{ file: string }>(['queues', queue, 'limits', 'file']);
	return <div class="stack"><Loaded of={published} lines={12}>{({ file }) => <Try queue={queue} published={file} />}</Loaded></div>;
}

/** A trial that has ended, and the file that was tried. */
interface Ended { file: string; trial?: Trial; error?: unknown }

function Try({ queue, published }: { queue: string; published: string }) {
	const [draft, setDraft] = useState(drafts.get(queue)), [busy, setBusy] = useState(false), [ended, setEnded] = useState<Ended | null>(null);
	const area = useRef<HTMLTextAreaElement>(null), running = useRef<AbortController | null>(null), id = useId();
	useEffect(() => () => running.current?.abort(), []);
	const file = draft ?? published;
	const edit = (text: string | undefined) => {
		if (text === undefined) drafts.delete(queue);
		else drafts.set(queue, text);
		setDraft(text);
	};
	const submit = async (e: Event) => {
		e.preventDefault();
		const { signal } = (running.current = new AbortController());
		setBusy(true);
		try {
			setEnded({ file, trial: await send<Trial>('POST', ['queues', queue, 'trial'], { file }, signal) });
		} catch (error) {
			if (signal.aborted) return;
			setEnded({ file, error });
		}
		setBusy(false);
	};
	const show = (line: number) => {
		const lines = file.split('\n'), from = lines.slice(0, line - 1).reduce((n, l) => n + l.length + 1, 0), a = area.current!;
		a.focus();
		a.setSelectionRange(from, from + (lines[line - 1]?.length ?? 0));
		a.scrollTop = (a.scrollHeight * (line - 4)) / lines.length;
	};
	const mistakes = mistakesOf(ended?.error), trial = ended?.trial;
	return (
		<>
			<Card title="Other limits">
				<form class="trial" onSubmit={submit}>
					<div class="grid wide-left">
						<label class="field" for={id + 'f'}>Limits file
							<textarea ref={area} id={id + 'f'} class="mono" rows={Math.min(Math.max(file.split('\n').length, 8), 24)} wrap="off" dir="ltr" value={file} onInput={(e) => edit(e.currentTarget.value)}
								required spellcheck={false} autocomplete="off" autocapitalize="off" aria-invalid={mistakes.length > 0} aria-describedby={id + 'h'} />
						</label>
						<div id={id + 'h'}>
							{mistakes.length > 0 ? <Mistakes of={mistakes} show={show} /> : ended?.error != null ? <Problem error={ended.error} /> : (
								<p class="hint">Edit the limits and try them: a model replays the calls of the last day under the limits in effect, and under these. Overrides stay in effect in both.</p>
							)}
						</div>
					</div>
					<div class="actions">
						<button type="submit" class="primary" disabled={busy}>Try</button>
						{file !== published && <button type="button" onClick={() => edit(undefined)}>Reset</button>}
						<p class="hint">A trial changes nothing in the queue.</p>
						<p class="hint" role="status">{busy && 'Replaying the calls of the last day. This can take a few seconds.'}</p>
					</div>
				</form>
			</Card>
			{trial && !busy && (
				<>
					{file !== ended.file && <p class="notice warn" role="status">You have changed the limits file since this trial.</p>}
					<Result queue={queue} t={trial} />
				</>
			)}
		</>
	);
}

/** The mistakes in a limits file. Line is 0 if a mistake concerns the whole file. */
function mistakesOf(error: unknown): { line: number; reason: string }[] {
	const fields: readonly FieldError[] = error instanceof ApiError ? error.fields : [];
	return fields.flatMap(({ field, reason }) => (/^file(:|$)/.test(field) ? [{ line: Number(field.slice(5)), reason }] : []));
}

function Mistakes({ of, show }: { of: { line: number; reason: string }[]; show: (line: number) => void }) {
	return (
		<div class="notice bad" role="alert">
			<b>{plural(of.length, 'mistake')} in the limits file</b>
			<ul>{of.map(({ line, reason }) => (
				<li key={line + reason}>{line > 0 && <><button type="button" class="link" onClick={() => show(line)}>Line {line}</button>: </>}<bdi>{reason}</bdi></li>
			))}</ul>
		</div>
	);
}

function Result({ queue, t }: { queue: string; t: Trial }) {
	if (t.calls === 0) {
		return <EmptyState title="No calls of the last day are known" icon="idle">A queue keeps its calls while its published limits file says <code>conformance: true</code> for it.</EmptyState>;
	}
	const at = (text: string | undefined) => clock(time(text), tick.peek()), more = t.total - t.tenants.length;
	return (
		<>
			<p class="sentence small" role="status">Replayed <b>{plural(t.calls, 'call')}</b> from {at(t.from)} to {at(t.to)}, including the first calls of <b>{plural(t.jobs, 'job')}</b>.</p>
			{t.jobs > 0 && <Waits t={t} />}
			<Limits t={t} />
			{t.jobs > 0 && (
				<Card title="How long 95 % of the jobs of each tenant waited">
					<Table<TrialTenant> caption="Tenants, measured, now and then" rows={t.tenants} id={(r) => r.tenant} columns={[
						{ label: 'Tenant', cell: (r) => <TenantLink queue={queue} tenant={r.tenant} /> },
						{ label: 'Jobs', figure: true, cell: (r) => num(r.jobs) },
						{ label: 'Measured', figure: true, cell: (r) => <Wait of={r.measured} /> },
						{ label: 'Now', figure: true, cell: (r) => <Wait of={r.in_force} by={r.held_by} /> },
						{ label: 'Then', figure: true, cell: (r) => <Wait of={r.proposed} by={r.would_hold_by} /> },
					]} />
					<p class="hint">Tenants for whom most changes come first.{more > 0 && ` Not shown: ${plural(more, 'more tenant')}.`}</p>
				</Card>
			)}
		</>
	);
}

const waitText = (seconds: number) => fineSpan(seconds * 1000);

function Wait({ of, by }: { of: Waiting; by?: string | undefined }) {
	return (
		<>
			{waitText(of.p95_seconds)}
			{by && <small class="why">held by <Name>{by}</Name></small>}
		</>
	);
}

const waits: [label: string, which: keyof Waiting][] = [['Half of the jobs', 'p50_seconds'], ['95 % of the jobs', 'p95_seconds'], ['99 % of the jobs', 'p99_seconds'], ['Longest wait', 'max_seconds']];

/** The distributions of waits, side by side. */
function Waits({ t }: { t: Trial }) {
	const bar = (of: Waiting, measured = false) => ([, which]: (typeof waits)[number]) => {
		const longest = Math.max(t.measured[which], t.in_force[which], t.proposed[which]);
		return <Bar part={longest > 0 ? of[which] / longest : 0} measured={measured}>{waitText(of[which])}</Bar>;
	};
	return (
		<Card title="How long jobs waited">
			<div class="waits">
				<Table caption="Waits, measured, now and then" rows={waits} id={([label]) => label} columns={[
					{ label: 'Waited at most', cell: ([label]) => <b>{label}</b> },
					{ label: 'Measured', figure: true, cell: bar(t.measured, true) },
					{ label: 'Now', figure: true, cell: bar(t.in_force) },
					{ label: 'Then', figure: true, cell: bar(t.proposed) },
				]} />
			</div>
			<p class="hint">Measured is how long jobs waited until their first call. Now and Then come from the model: under the limits in effect, and under these limits. Where Measured and Now differ, something held jobs that the model leaves out, such as pauses, too few workers, or a provider that refused calls.</p>
		</Card>
	);
}

const Names = ({ of }: { of: string[] }) => <>{of.map((name, i) => <span key={name}>{i > 0 && ', '}<Name>{name}</Name></span>)}</>;

/** A limit as it is in effect and as it is proposed, each unless there is none of its name. */
interface Both { name: string; now: TrialLimit | undefined; then: TrialLimit | undefined }

function Limits({ t }: { t: Trial }) {
	const names = new Set([...t.in_force.limits, ...t.proposed.limits].map((l) => l.name));
	const rows = [...names].map((name): Both => ({ name, now: t.in_force.limits.find((l) => l.name === name), then: t.proposed.limits.find((l) => l.name === name) }));
	if (rows.length === 0) return null;
	const leftOut = (l: TrialLimit) => t.not_counted.includes(l.name) && !l.used && !l.held_seconds;
	const text = (l: TrialLimit | undefined, of: (l: TrialLimit) => string) => (!l || leftOut(l) ? '–' : of(l));
	const used = (l: TrialLimit | undefined) => (l ? text(l, () => (l.used === undefined ? '–' : percent(l.used))) : 'no limit');
	const held = (l: TrialLimit) => fineSpan(l.held_seconds * 1000), tenants = (l: TrialLimit) => num(l.tenants);
	return (
		<Card title="Limits">
			<Table<Both> caption="Limits, now and then" rows={rows} id={(r) => r.name} columns={[
				{ label: 'Limit', cell: (r) => <b><Name>{r.name}</Name></b> },
				{ label: 'Used now', figure: true, cell: (r) => used(r.now) },
				{ label: 'Used then', figure: true, cell: (r) => used(r.then) },
				{ label: 'Held jobs now', figure: true, cell: (r) => text(r.now, held) },
				{ label: 'Held jobs then', figure: true, cell: (r) => text(r.then, held) },
				{ label: 'Tenants held now', figure: true, cell: (r) => text(r.now, tenants) },
				{ label: 'Tenants held then', figure: true, cell: (r) => text(r.then, tenants) },
			]} />
			{t.not_counted.length > 0 && (
				<p class="notice">The model leaves out <Names of={t.not_counted} />: it does not know how long calls take, nor the calls of other queues.</p>
			)}
			{t.full_rate.length > 0 && (
				<p class="notice">Tried at the full rate: <Names of={t.full_rate} />. The model knows neither ramps nor adaptive rates.</p>
			)}
			<p class="hint">Used: of a limit that all tenants share, the part of its permits that calls took. Held jobs: the sum of the times for which it held jobs that were next in their lanes. Tenants held: how many tenants it held longer than other limits did.</p>
		</Card>
	);
}
