import { useEffect, useId, useState } from 'preact/hooks';
import { askAction, askPause, askResume } from '../actions';
import { askChange } from '../change';
import { clock, num, plural, rate, time } from '../format';
import { useResource, useSettled } from '../hooks';
import { route, setQuery } from '../router';
import { mayChange } from '../session';
import type { TenantPage, TenantRow } from '../types';
import { Badge } from '../ui/icon';
import { Menu } from '../ui/menu';
import { Meter } from '../ui/meter';
import { TenantLink } from '../ui/name';
import { pausedBy } from '../ui/sentence';
import { EmptyState, Loaded } from '../ui/states';
import { Paging, Table, type Column } from '../ui/table';

const limit = 50;

/** The tenants of a queue. */
export function TenantsPage({ queue }: { queue: string }) {
	const { query } = route.value;
	const search = query.get('search') ?? '', by = query.get('sort') ?? 'waiting', ascending = query.get('order') === 'asc';
	const offset = Math.max(0, Math.floor(Number(query.get('offset')) || 0));
	const page = useResource<TenantPage>(['queues', queue, 'tenants'], { search, sort: by, order: ascending ? 'asc' : 'desc', offset, limit }, 2);
	return (
		<div class="card">
			<Search value={search} total={page.data?.total} />
			<Loaded of={page} lines={12}>{({ tenants, total }) => total === 0
				? search ? <EmptyState title="No matching tenants" icon="idle">The search ignores case. <button type="button" onClick={() => setQuery({ search: '', offset: '' })}>Show all</button></EmptyState>
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
	);
}

function Search({ value, total }: { value: string; total: number | undefined }) {
	const [text, setText] = useState(value), settled = useSettled(text, 250), id = useId();
	useEffect(() => {
		if (settled !== (route.peek().query.get('search') ?? '')) setQuery({ search: settled, offset: '' });
	}, [settled]);
	useEffect(() => setText(value), [value]);
	return (
		<div class="toolbar" role="search">
			<label for={id} class="vh">Search tenants by name</label>
			<input id={id} type="search" placeholder="Search tenants" value={text} onInput={(e) => setText(e.currentTarget.value)} autocomplete="off" spellcheck={false} />
			<span role="status">{total !== undefined && plural(total, 'tenant')}</span>
		</div>
	);
}

function columns(): Column<TenantRow>[] {
	const list: Column<TenantRow>[] = [
		{ label: 'Tenant', sort: 'tenant', cell: (t) => <><TenantLink queue={t.queue} tenant={t.tenant} /> <Marks of={t} /></> },
		{ label: 'Waiting', sort: 'waiting', figure: true, cell: (t) => num(t.waiting) },
		{ label: 'Rate', figure: true, cell: (t) => (t.rate_per_second ? rate(t.rate_per_second) : '–') },
		{ label: 'Held by', cell: (t) => (t.held_by ? <><bdi>{t.held_by.limit}</bdi> <small>{t.held_by.rule}</small></> : t.unserved ?? (t.pause ? <>{t.pause.tried ? 'held back' : 'paused'} {pausedBy(t.pause, t.now)}</> : '–')) },
		{ label: 'Bucket', cell: (t) => (t.capacity > 0 ? <Meter level={t.level} full={t.capacity} label={`Permits of limit ${t.limit}`} /> : '–') },
		{ label: 'Drains at', sort: 'drains', figure: true, cell: (t) => (t.waiting === 0 ? '–' : t.drains_at ? <>{t.confidence === 'rough' && '~ '}{clock(time(t.drains_at), time(t.now))}</> : 'unknown') },
		{ label: 'Weight', sort: 'weight', figure: true, cell: (t) => num(t.weight) },
	];
	if (mayChange.value) list.push({ label: 'Change', quiet: true, cell: (t) => <Actions of={t} /> });
	return list;
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
