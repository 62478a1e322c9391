"""The shop's pages."""

from decimal import Decimal

from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.db.models import Avg, Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from shop.models import Category, Product

_A_PAGE = 20


def _shown() -> QuerySet[Product]:
    found = Product.objects.filter(published=True).select_related("category", "maker")
    return found.annotate(stars=Avg("reviews__stars"), reviewed=Count("reviews"))


def _listed(request: HttpRequest, found: QuerySet[Product], heading: str) -> HttpResponse:
    page = Paginator(found, _A_PAGE).get_page(request.GET.get("page"))
    categories = Category.objects.annotate(number=Count("products"))
    told = {"heading": heading, "page": page, "categories": categories}
    return render(request, "shop/list.html", told)


def products(request: HttpRequest) -> HttpResponse:
    return _listed(request, _shown(), "All products")


def search(request: HttpRequest) -> HttpResponse:
    wanted = request.GET.get("q", "")
    matches = Q(name__icontains=wanted) | Q(description__icontains=wanted)
    return _listed(request, _shown().filter(matches), f"Search: {wanted}")


@login_required
def product(request: HttpRequest, number: int) -> HttpResponse:
    found = get_object_or_404(Product.objects.select_related("category", "maker"), pk=number)
    told = {
        "product": found,
        "reviews": found.reviews.select_related("author")[:10],
        "others": found.maker.products.filter(published=True).exclude(pk=number)[:5],
        "number": found.reviews.count(),
    }
    return render(request, "shop/product.html", told)


def api(request: HttpRequest) -> HttpResponse:
    found = Product.objects.filter(published=True).select_related("category")
    page = Paginator(found, _A_PAGE).get_page(request.GET.get("page"))
    each = [
        {"id": p.pk, "name": p.name, "price": str(p.price), "category": p.category.slug}
        for p in page
    ]
    return JsonResponse({"count": page.paginator.count, "results": each})


def api_product(request: HttpRequest, number: int) -> HttpResponse:
    found = get_object_or_404(Product, pk=number)
    others = found.maker.products.exclude(pk=number)[:5]
    told = {
        "id": found.pk,
        "name": found.name,
        "description": found.description,
        "price": str(found.price),
        "category": found.category.slug,
        "maker": {"name": found.maker.name, "others": [each.pk for each in others]},
        "reviews": [{"stars": each.stars, "text": each.text} for each in found.reviews.all()],
    }
    return JsonResponse(told)


@csrf_exempt
@require_POST
def api_price(request: HttpRequest, number: int) -> HttpResponse:
    found = get_object_or_404(Product, pk=number)
    found.price = Decimal(request.POST["price"])
    found.save()
    return JsonResponse({"id": found.pk, "price": str(found.price)})
