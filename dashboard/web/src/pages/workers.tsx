import { sentenceCase, num, percent, plural, relative, time } from '../format';
import { useResource } from '../hooks';
import { queues, tick } from '../live';
import { href } from '../router';
import { seesFleet } from '../session';
import type { Worker } from '../types';
import { Badge, Icon } from '../ui/icon';
import { Name } from '../ui/name';
import { EmptyState, Loaded } from '../ui/states';
import { Table, type Column } from '../ui/table';

const useWorkers = (allowed: boolean) => useResource<{ workers: Worker[]; starved: Record<string, number> }>(allowed ? ['workers'] : null, undefined, 2);

/** Why jobs of some queues go nowhere: no worker takes them. */
const stopped = () => (queues.value ?? []).flatMap((q) => q.unserved ?? []).map(sentenceCase);

/** How long ago a heartbeat was. It can be later than the last tick of the page. */
const beat = (seen: number) => relative(Math.min(seen, tick.value), tick.value);

/** Whether the fleet is alive, for the header. */
export function Fleet() {
	const list = useWorkers(seesFleet.value).data?.workers, reasons = stopped();
	if (!list) return null; // not loaded yet, or not to be seen with this key
	const seen = list.map((w) => time(w.seen));
	return (
		<a class="fleet" href={href('workers')}>
			{reasons.length > 0 ? <Badge tone="bad">{reasons[0]}{reasons.length > 1 && ` and ${num(reasons.length - 1)} more`}</Badge>
				: list.length === 0 ? <Badge tone="warn">No workers</Badge>
				: <Badge tone="good">{plural(list.length, 'worker')}, {beat(Math.max(...seen))}</Badge>}
		</a>
	);
}

/** The workers that sent a heartbeat lately: what each one serves and how many jobs it holds. */
export function WorkersPage() {
	const workers = useWorkers(true);
	return (
		<div class="stack">
			{stopped().map((why) => <p key={why} class="notice bad"><Icon name="warn" />{why}. Its jobs wait until such a worker starts.</p>)}
			<Loaded of={workers}>{({ workers: list, starved }) => (
				<>
					{Object.entries(starved).map(([q, share]) => <p key={q} class="notice warn"><Icon name="warn" />Workers are the limit for {q}: in {percent(share)} of the last seconds jobs could go and no worker had room for them. Start another worker, or raise HEADGATE_CONCURRENCY.</p>)}
					{list.filter((w) => w.limits_file?.error).map((w) => <p key={w.id} class="notice warn"><Icon name="warn" /><span>The limits file of <Name>{w.host}</Name> is not in effect: <bdi>{w.limits_file!.error}</bdi></span></p>)}
					<div class="card">
						{list.length === 0
							? <EmptyState title="No worker is running" icon="warn">Jobs wait until a worker that serves their queue starts.</EmptyState>
							: <Table caption="Workers" columns={columns} rows={list} id={(w) => w.id} />}
					</div>
				</>
			)}</Loaded>
		</div>
	);
}

const all = (names: string[], link?: (name: string) => string) => names.map((n, i) => (
	<span key={n}>{i > 0 && ', '}{link ? <a href={link(n)}><Name>{n}</Name></a> : <Name>{n}</Name>}</span>
));

const columns: Column<Worker>[] = [
	{ label: 'Worker', cell: (w) => <><Name>{w.host || w.id}</Name> <small>process {String(w.pid)}</small></> },
	{ label: 'Version', cell: (w) => (w.version ? <Name>{w.version}</Name> : '–') },
	{ label: 'Queues', cell: (w) => all(w.queues, (q) => href('queues', q)) },
	{ label: 'Kinds', cell: (w) => all(w.kinds) },
	{ label: 'Jobs held', figure: true, cell: (w) => `${num(w.held)} of ${num(w.concurrency)}` },
	{ label: 'Being sent', figure: true, cell: (w) => num(w.sending) },
	{ label: 'Last heartbeat', figure: true, cell: (w) => beat(time(w.seen)) },
];
