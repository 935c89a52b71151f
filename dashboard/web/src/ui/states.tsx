import type { ComponentChildren } from 'preact';
import { useErrorBoundary } from 'preact/hooks';
import { ApiError, isAway } from '../api';
import { connection, heardAt, redisError, refusal, silent, tick } from '../live';
import { clock } from '../format';
import type { Resource } from '../hooks';
import { Icon, type IconName } from './icon';

export function EmptyState({ title, icon = 'ok', children }: { title: string; icon?: IconName; children?: ComponentChildren }) {
	return <div class="state"><Icon name={icon} /><h2>{title}</h2>{children && <p>{children}</p>}</div>;
}

export function ErrorState({ error, retry }: { error: unknown; retry?: () => void }) {
	const e = error instanceof ApiError ? error : new ApiError(0, 'Something went wrong on this page', String(error));
	const title = e.status === 404 ? 'Not found' : e.status === 403 ? 'Not allowed with this key' : e.title;
	return (
		<div class="state bad" role="alert">
			<Icon name="warn" /><h2>{title}</h2>
			{e.detail && <p><bdi>{e.detail}</bdi></p>}
			{isAway(e) && <p>The page retries automatically.</p>}
			{retry && <button type="button" onClick={retry}>Try again</button>}
		</div>
	);
}

/** Grey lines in place of text that is loading. */
export function Skeleton({ lines = 3 }: { lines?: number }) {
	return <div class="skeleton" role="status" aria-label="Loading">{Array.from({ length: lines }, (_, i) => <span key={i} />)}</div>;
}

/** Shows the data, or that it is loading, or the error. Old data stays, marked as not up to date. */
export function Loaded<T>({ of, lines, children }: { of: Resource<T>; lines?: number; children: (data: T) => ComponentChildren }) {
	if (!of.data) return of.error ? <ErrorState error={of.error} retry={of.refresh} /> : <Skeleton lines={lines ?? 5} />;
	return (
		<>
			{of.error != null && !redisError.value && connection.value !== 'away' && !silent.value &&
				<p class="notice warn" role="status"><Icon name="warn" />Not up to date: <bdi>{(of.error as Error).message}</bdi></p>}
			{children(of.data)}
		</>
	);
}

/** A banner across the page while the server or Redis does not answer, or the server refuses the stream. */
export function AwayBanner() {
	const away = connection.value === 'away' || silent.value, refused = refusal.value;
	if (refused) {
		return (
			<div class="banner" role="alert">
				<Icon name="warn" />
				<p>
					<b>{refused.status === 403 ? 'The page is not live with this key.' : 'The page is not live.'}</b>{' '}
					<bdi>{refused.message}</bdi>{refused.status !== 403 && ' The page reconnects automatically.'}
				</p>
			</div>
		);
	}
	if (redisError.value === null && !away) return null;
	const since = heardAt.value ? <> The data shown is from <b>{clock(heardAt.value, tick.peek())}</b>.</> : null;
	return (
		<div class="banner" role="alert">
			<Icon name="warn" />
			<p>
				<b>{away ? 'The server does not answer.' : 'Redis does not answer.'}</b>{' '}
				{away ? 'Running workers do not need this page.' : 'Workers that cannot reach Redis send nothing. When it is back, waiting jobs continue at their limits.'}
				{since} The page reconnects automatically.
			</p>
		</div>
	);
}

/** Keeps an error in one page from breaking the others. */
export function Boundary({ children }: { children: ComponentChildren }) {
	const [error, again] = useErrorBoundary((e) => console.error(e));
	return error ? <ErrorState error={error} retry={again} /> : <>{children}</>;
}
