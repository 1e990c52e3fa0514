//! Functions are simple: the cyclomatic complexity of each is limited.
//!
//! The lint `clippy::cognitive_complexity` does not measure this: it counts the branches that the
//! macros of tracing expand to, and a `match` as one branch, however many arms it has. It reports
//! 38 for a function with five log statements, and nothing for a decision with 32 branches.

use syn::visit::{self, Visit};
use syn::{
    BinOp, ExprBinary, ExprForLoop, ExprIf, ExprMatch, ExprTry, ExprWhile, ImplItemFn, ItemFn,
    Local, PatGuard, TraitItemFn,
};

use super::sources::{crates, is_for_tests};

/// The maximum cyclomatic complexity of a function: 1 for the function, and 1 for each branch. The
/// branches of a closure count for the function that contains it.
const MAX_COMPLEXITY: usize = 20;

#[test]
fn functions_are_simple() {
    let mut found = Vec::new();
    for of_crate in crates() {
        for module in of_crate.modules.values() {
            let mut functions = Functions::default();
            for item in &module.items {
                functions.visit_item(item);
            }
            let file = module.file.display().to_string();
            found.extend(functions.complex.into_iter().map(|it| (file.clone(), it)));
        }
    }
    let mut texts = Vec::new();
    for (file, function) in found {
        let Function { name, complexity } = function;
        texts.push(format!("{file}: {name} has the complexity {complexity}"));
    }
    assert!(
        texts.is_empty(),
        "functions with more than {MAX_COMPLEXITY} branches; split them into named steps:\n{}",
        texts.join("\n")
    );
}

struct Function {
    name: String,
    complexity: usize,
}

/// Collects the functions that are too complex.
#[derive(Default)]
struct Functions {
    complex: Vec<Function>,
}

impl Functions {
    fn measure(&mut self, name: String, count: impl FnOnce(&mut Branches)) {
        let mut branches = Branches { count: 1 };
        count(&mut branches);
        if branches.count > MAX_COMPLEXITY {
            self.complex.push(Function {
                name,
                complexity: branches.count,
            });
        }
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        let name = function.sig.ident.to_string();
        self.measure(name, |branches| branches.visit_block(&function.block));
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        if is_for_tests(&function.attrs) {
            return;
        }
        let name = function.sig.ident.to_string();
        self.measure(name, |branches| branches.visit_block(&function.block));
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        if let Some(block) = &function.default {
            let name = function.sig.ident.to_string();
            self.measure(name, |branches| branches.visit_block(block));
        }
        visit::visit_trait_item_fn(self, function);
    }
}

/// Counts the branches of a function. The content of macros is not parsed.
struct Branches {
    count: usize,
}

impl<'ast> Visit<'ast> for Branches {
    fn visit_expr_if(&mut self, expression: &'ast ExprIf) {
        self.count += 1;
        visit::visit_expr_if(self, expression);
    }

    fn visit_expr_while(&mut self, expression: &'ast ExprWhile) {
        self.count += 1;
        visit::visit_expr_while(self, expression);
    }

    fn visit_expr_for_loop(&mut self, expression: &'ast ExprForLoop) {
        self.count += 1;
        visit::visit_expr_for_loop(self, expression);
    }

    fn visit_expr_try(&mut self, expression: &'ast ExprTry) {
        self.count += 1;
        visit::visit_expr_try(self, expression);
    }

    fn visit_expr_binary(&mut self, expression: &'ast ExprBinary) {
        if matches!(expression.op, BinOp::And(_) | BinOp::Or(_)) {
            self.count += 1;
        }
        visit::visit_expr_binary(self, expression);
    }

    fn visit_expr_match(&mut self, expression: &'ast ExprMatch) {
        // One of the arms is taken in any case.
        self.count += expression.arms.len().saturating_sub(1);
        visit::visit_expr_match(self, expression);
    }

    fn visit_pat_guard(&mut self, pattern: &'ast PatGuard) {
        self.count += 1;
        visit::visit_pat_guard(self, pattern);
    }

    fn visit_local(&mut self, statement: &'ast Local) {
        // `let … else` is a branch.
        let diverges = statement
            .init
            .as_ref()
            .is_some_and(|init| init.diverge.is_some());
        self.count += usize::from(diverges);
        visit::visit_local(self, statement);
    }

    fn visit_item_fn(&mut self, _: &'ast ItemFn) {
        // A function in a function is measured on its own.
    }
}
