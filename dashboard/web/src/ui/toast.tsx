import { signal } from '@preact/signals';
import { Icon } from './icon';

interface Toast { id: number; text: string; bad: boolean }
const toasts = signal<Toast[]>([]);
let ids = 0;

/** Shows a short message, which screen readers announce. */
export function say(text: string, bad = false): void {
	const one = { id: ++ids, text, bad };
	toasts.value = [...toasts.value.slice(-2), one];
	setTimeout(() => (toasts.value = toasts.value.filter((t) => t !== one)), bad ? 12_000 : 6_000);
}

export function Toasts() {
	return (
		<div class="toasts" role="status" aria-live="polite">
			{toasts.value.map((t) => <p key={t.id} class={t.bad ? 'bad' : ''}><Icon name={t.bad ? 'warn' : 'ok'} /><bdi>{t.text}</bdi></p>)}
		</div>
	);
}
