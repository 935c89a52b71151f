import { useEffect, useState } from 'preact/hooks';
import { send } from './api';
import { Length } from './actions';
import { span, time } from './format';
import { useResource, useSettled } from './hooks';
import type { LimitPreview, LimitState, Tenant } from './types';
import { ConfirmDialog, openDialog, Problem } from './ui/dialog';
import { Sentence } from './ui/sentence';
import { Loaded } from './ui/states';
import { say } from './ui/toast';

// Changes one tenant's limit for some time, after a preview of the effect.

// changeable limits can differ for a tenant in this queue alone.
export const changeable = (l: LimitState) => l.per?.includes('tenant') && !l.queues;

export function askChange(queue: string, tenant: string, limit?: string): void {
	openDialog(() => <Fetch queue={queue} tenant={tenant} limit={limit} />);
}

function Fetch({ queue, tenant, limit }: { queue: string; tenant: string; limit: string | undefined }) {
	const detail = useResource<Tenant>(['queues', queue, 'tenants', tenant]);
	return <Loaded of={detail}>{(t) => <ChangeDialog queue={queue} tenant={tenant} limits={(t.limits ?? []).filter(changeable)} first={limit} />}</Loaded>;
}

function ChangeDialog({ queue, tenant, limits, first }: { queue: string; tenant: string; limits: LimitState[]; first: string | undefined }) {
	const [name, setName] = useState((limits.find((l) => l.name === first) ?? limits[0])?.name);
	const [edited, setEdited] = useState<Record<string, string>>({}), [length, setLength] = useState('3600');
	const limit = limits.find((l) => l.name === name);
	const fields = limit ? fieldsOf(limit) : [];
	const shown = fields.map(([field, , now]) => [field, edited[field] || now] as const);
	const changed = shown.some(([, value], i) => value !== fields[i]![2]);
	// Send all fields: one that an override omits has its value for other tenants, not its current one.
	const change = Object.fromEntries(shown.map(([field, value]) => [field, field === 'rate' || Number.isNaN(Number(value)) ? value : Number(value)])); // the API says what is wrong with other texts
	const path = ['queues', queue, 'tenants', tenant, 'limits', name ?? ''];
	const body = { ...change, ...(length ? { for: `${length}s` } : {}) };
	const { preview, error, fresh } = usePreview(path, changed ? body : null);
	if (!limit) return <ConfirmDialog title="Change a limit" consequence={<p>This queue has no limit per tenant, so there is none to change.</p>} verb="Change" ready={false} act={async () => {}} />;
	return (
		<ConfirmDialog
			title={`Change a limit of ${tenant}`} verb="Change the limit" ready={fresh}
			consequence={<p>Applies to <bdi>{tenant}</bdi> only, instead of the limits file, on every worker within a second. Used permits stay used, so no burst follows.</p>}
			fields={(
				<>
					<div class="fields">
						<label class="field">Limit
							<select value={name} onChange={(e) => (setName(e.currentTarget.value), setEdited({}))}>{limits.map((l) => <option key={l.name} value={l.name}>{l.name} ({l.rule})</option>)}</select>
						</label>
						{fields.map(([field, label, now]) => (
							<label class="field" key={field}>{label}
								<input value={edited[field] ?? now} inputMode={field === 'rate' ? 'text' : 'numeric'} autocomplete="off" spellcheck={false}
									onInput={(e) => setEdited({ ...edited, [field]: e.currentTarget.value })} />
							</label>
						))}
						<Length value={length} change={setLength} none="Until cleared" />
					</div>
					<div class="preview" aria-live="polite" aria-busy={!fresh && error == null && changed}>
						{error != null ? <Problem error={error} /> : preview ? <Effect of={preview} /> : <p class="hint">Change a value to preview the effect.</p>}
					</div>
				</>
			)}
			act={async (reason) => {
				await send<LimitPreview>('PUT', path, { ...body, reason, dry_run: false });
				say(`Changed ${name} of ${tenant}`);
			}}
		/>
	);
}

/** Returns the fields of a limit that can be changed: name, label, current value. */
function fieldsOf(l: LimitState): [string, string, string][] {
	if (l.concurrency) return [['concurrency', 'Max in flight', String(l.concurrency)]];
	const fields: [string, string, string][] = [['rate', 'Rate', l.rule]];
	if (l.burst) fields.push(['burst', 'Burst', String(l.burst)]);
	if (l.capacity) fields.push(['capacity', 'Capacity', String(l.capacity)]);
	return fields;
}

/** Requests a preview of a change once typing pauses. */
function usePreview(path: string[], body: object | null) {
	const text = body ? JSON.stringify([path, body]) : '', settled = useSettled(text, 300);
	const [answer, set] = useState<{ of: string; preview: LimitPreview | null; error: unknown }>({ of: '', preview: null, error: null });
	useEffect(() => {
		if (!settled) return set({ of: '', preview: null, error: null });
		const abort = new AbortController(), [to, what] = JSON.parse(settled) as [string[], object];
		send<LimitPreview>('PUT', to, { ...what, reason: 'preview', dry_run: true }, abort.signal).then(
			(preview) => set({ of: settled, preview, error: null }),
			(error) => abort.signal.aborted || set({ of: settled, preview: null, error }),
		);
		return () => abort.abort();
	}, [settled]);
	return { ...answer, fresh: answer.preview !== null && answer.of === text };
}

function Effect({ of: { before, after } }: { of: LimitPreview }) {
	const by = time(before.drains_at) - time(after.drains_at);
	return (
		<>
			<h3>Now</h3><Sentence of={before} />
			<h3>After the change</h3><Sentence of={after} />
			{Number.isFinite(by) && <p class="hint">{Math.abs(by) < 1000 ? 'Done at the same time.' : `Done ${span(Math.abs(by))} ${by > 0 ? 'earlier' : 'later'}.`}</p>}
		</>
	);
}

export function askClear(queue: string, tenant: string, l: LimitState): void {
	openDialog(() => (
		<ConfirmDialog
			title={`Clear the override of ${l.name}`} verb="Clear the override"
			consequence={l.not_in_force ? <p>It is not in force, so clearing it does not change when calls go.</p> : <p>The limits file applies to <bdi>{tenant}</bdi> again{l.file?.rule && <>: <b>{l.file.rule}</b> instead of <b>{l.rule}</b></>}.</p>}
			act={async (reason) => {
				await send('DELETE', ['queues', queue, 'tenants', tenant, 'limits', l.name], { reason });
				say(`The limits file applies to ${tenant} again`);
			}}
		/>
	));
}
