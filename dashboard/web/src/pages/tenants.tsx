import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { askAction, askPause, askResume } from '../actions';
import { askChange } from '../change';
import { clock, num, percent, plural, rate, time } from '../format';
import { useResource, useSettled } from '../hooks';
import { route, setQuery } from '../router';
import { mayChange, seesAll } from '../session';
import type { Shares, TenantPage, TenantRow } from '../types';
import { Chart } from '../ui/chart';
import { Badge } from '../ui/icon';
import { Menu } from '../ui/menu';
import { Meter } from '../ui/meter';
import { shortened, TenantLink } from '../ui/name';
import { pausedBy } from '../ui/sentence';
import { EmptyState, Loaded } from '../ui/states';
import { Paging, Table, type Column } from '../ui/table';

const limit = 50;

/** The tenants of a queue. */
export function TenantsPage({ queue }: { queue: string }) {
	const { query } = route.value;
	const search = query.get('search') ?? '', only = query.get('only') ?? '', by = query.get('sort') ?? 'waiting', ascending = query.get('order') === 'asc';
	const offset = Math.max(0, Math.floor(Number(query.get('offset')) || 0));
	const page = useResource<TenantPage>(['queues', queue, 'tenants'], { search, only, sort: by, order: ascending ? 'asc' : 'desc', offset, limit }, 2);
	return (
		<div class="stack">
			{seesAll.value && <Usage queue={queue} />}
			<div class="card">
				<Search value={search} only={only} total={page.data?.total} />
				<Loaded of={page} lines={12}>{({ tenants, total }) => total === 0
					? search || only ? <EmptyState title="No matching tenants" icon="idle">The search ignores case. <button type="button" onClick={() => setQuery({ search: '', only: '', offset: '' })}>Show all</button></EmptyState>
						: <EmptyState title={`No tenants in ${queue} yet`} icon="idle">A tenant appears with its first job.</EmptyState>
					: (
						<>
							<Table caption={`Tenants of ${queue}`} columns={columns()} rows={tenants} id={(t) => t.tenant} busy={page.loading}
								sorting={{ by, ascending, change: (sort, up) => setQuery({ sort, order: up ? 'asc' : 'desc', offset: '' }) }} />
							<Paging offset={offset} limit={limit} total={total} go={(at) => setQuery({ offset: at || '' })} />
						</>
					)}
				</Loaded>
			</div>
		</div>
	);
}

/** Who made the calls of the last ten minutes. */
function Usage({ queue }: { queue: string }) {
	const { data } = useResource<Shares>(['queues', queue, 'shares'], undefined, 10);
	if (!data || data.tenants.length === 0) return null;
	const label = (of: Shares['tenants'][number]) => `${shortened(of.tenant)} ${percent(of.share)}`;
	const rest = 1 - data.tenants.reduce((sum, t) => sum + t.share, 0);
	const series = data.tenants.map((t, i) => ({ label: label(t), colour: `--share-${i + 1}`, values: t.per_second }));
	if (rest > 0.0005) series.unshift({ label: `all others ${percent(rest)}`, colour: '--line-strong', values: data.others });
	return (
		<section class="card" aria-labelledby="usage">
			<header><h2 id="usage">Who uses the shared limits</h2><small>successful calls per second, and each tenant’s share of the last ten minutes</small></header>
			<Chart x={data.times.map((t) => time(t) / 1000)} height={128} series={series} stacked
				summary={`Successful calls of the last ten minutes: ${data.tenants.map((t) => `${t.tenant} ${rate(Math.round(t.sent_per_second * 10) / 10)}, ${percent(t.share)}`).join('; ')}.`} />
		</section>
	);
}

function Search({ value, only, total }: { value: string; only: string; total: number | undefined }) {
	const [text, setText] = useState(value), settled = useSettled(text, 250), id = useId();
	// Only what something else set goes into the field: what the field set itself may be older than its last letter.
	const own = useRef(value);
	useEffect(() => {
		own.current = settled;
		if (settled !== (route.peek().query.get('search') ?? '')) setQuery({ search: settled, offset: '' });
	}, [settled]);
	useEffect(() => {
		if (value !== own.current) setText(own.current = value);
	}, [value]);
	return (
		<div class="toolbar" role="search">
			<label for={id} class="vh">Search tenants by name</label>
			<input id={id} type="search" placeholder="Search tenants" value={text} onInput={(e) => setText(e.currentTarget.value)} autocomplete="off" spellcheck={false} />
			<select aria-label="Which tenants" value={only} onChange={(e) => setQuery({ only: e.currentTarget.value, offset: '' })}>
				<option value="">All tenants</option>
				<option value="waiting">With waiting jobs</option>
				<option value="paused">Paused</option>
				<option value="overridden">With an override</option>
				<option value="own">With limits of their own</option>
			</select>
			<span role="status">{total !== undefined && plural(total, 'tenant')}</span>
		</div>
	);
}

function columns(): Column<TenantRow>[] {
	const list: Column<TenantRow>[] = [
		{ label: 'Tenant', sort: 'tenant', cell: (t) => <><TenantLink queue={t.queue} tenant={t.tenant} /> <Marks of={t} /></> },
		{ label: 'Waiting', sort: 'waiting', figure: true, cell: (t) => num(t.waiting) },
		{ label: 'Rate', figure: true, cell: rateOf },
		{ label: 'Held by', cell: heldBy },
		{ label: 'Bucket', cell: (t) => (t.capacity > 0 ? <Meter level={t.level} full={t.capacity} label={`Permits of limit ${t.limit}`} /> : '–') },
		{ label: 'Clears at', sort: 'drains', figure: true, cell: (t) => (t.waiting === 0 ? '–' : t.drains_at ? <>{t.confidence === 'rough' && '~ '}{clock(time(t.drains_at), time(t.now))}</> : 'unknown') },
		{ label: 'Weight', sort: 'weight', figure: true, cell: (t) => num(t.weight) },
	];
	if (mayChange.value) list.push({ label: 'Change', quiet: true, cell: (t) => <Actions of={t} /> });
	return list;
}

/** The rate at which a tenant's jobs go; a paused tenant sends nothing, whatever its limits admit. */
export const rateOf = (t: TenantRow) => (t.pause && t.waiting > 0 ? rate(0) : t.rate_per_second ? rate(t.rate_per_second, t.held_by?.rule) : '–');

function heldBy(t: TenantRow) {
	if (t.unserved) return t.unserved;
	if (t.pause) return <>{t.pause.tried ? 'held back' : 'paused'} {pausedBy(t.pause, t.now)}</>;
	return t.held_by ? <><bdi>{t.held_by.limit}</bdi> <small>{t.held_by.rule}</small></> : '–';
}

export const isPaused = (t: TenantRow) => t.pauses?.some((p) => p.tenant === t.tenant) ?? false;

export function Marks({ of }: { of: TenantRow }) {
	return <>{(of.pauses?.length ?? 0) > 0 && <Badge tone="warn" icon="pause">Paused</Badge>}{of.overridden && <Badge tone="busy" icon="warn">Override</Badge>}</>;
}

function Actions({ of: t }: { of: TenantRow }) {
	return (
		<Menu label={`Change ${t.tenant}`}>
			{isPaused(t)
				? <button type="button" onClick={() => askResume(t.queue, { tenant: t.tenant })}>Resume…</button>
				: <button type="button" onClick={() => askPause(t.queue, { tenant: t.tenant }, t.waiting)}>Pause…</button>}
			<button type="button" onClick={() => askChange(t.queue, t.tenant, t.limit)}>Change limit…</button>
			<button type="button" onClick={() => askAction(t.queue, 'cancel', { tenant: t.tenant }, `jobs of ${t.tenant}`)}>Cancel jobs…</button>
		</Menu>
	);
}
